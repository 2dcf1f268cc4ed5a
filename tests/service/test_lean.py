from fastapi import APIRouter, FastAPI
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.testclient import TestClient

from service.lean import LeanRoute


def an_app() -> FastAPI:
    router = APIRouter(prefix="/things", tags=["things"], route_class=LeanRoute)

    @router.post("/{thing}", summary="Make a thing", responses={404: {"description": "None"}})
    async def make(request: Request) -> Response:
        if request.path_params["thing"] == "none":
            raise HTTPException(404)
        return Response(await request.body(), 201)

    app = FastAPI()
    app.router.routes.extend(router.routes)
    return app


def test_the_endpoint_gets_the_bare_request() -> None:
    response = TestClient(an_app()).post("/things/one", content=b"made")
    assert (response.status_code, response.content) == (201, b"made")


def test_errors_and_methods_are_handled_as_for_any_route() -> None:
    client = TestClient(an_app())
    assert client.post("/things/none").status_code == 404
    response = client.get("/things/one")
    assert (response.status_code, response.headers["allow"]) == (405, "POST")


def test_it_is_documented_as_any_route() -> None:
    operation = an_app().openapi()["paths"]["/things/{thing}"]["post"]
    assert operation["summary"] == "Make a thing"
    assert operation["tags"] == ["things"]
    assert "404" in operation["responses"]
