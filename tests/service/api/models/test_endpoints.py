from dataclasses import asdict

from starlette.testclient import TestClient

from tests.support.edge import FACTS


def test_models_are_the_tasks_in_openai_s_shape(client: TestClient) -> None:
    models = client.get("/v1/models").json()
    assert models["object"] == "list"
    assert [model["id"] for model in models["data"]] == ["nli", "sms", "trec"]
    model = models["data"][2]
    assert set(model) == {"id", "object", "created", "owned_by", "version", "digest"}
    version = client.get("/v1/capsules/trec/versions/1").json()
    assert (model["object"], model["owned_by"], model["version"]) == ("model", "upload", 1)
    assert model["digest"] == version["digest"]
    assert 1.7e9 < model["created"] < 1e10


def test_the_backbone_is_described(client: TestClient) -> None:
    assert client.get("/v1/backbone").json() == asdict(FACTS)
