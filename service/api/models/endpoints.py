"""`GET /v1/models` and `GET /v1/backbone`."""

from dataclasses import asdict

from fastapi import APIRouter

from service.api.models.schemas import BackboneReply, ModelList
from service.api.models.service import list_models
from service.dependencies import WarmDep
from service.errors import Unavailable
from service.problems import responses

router = APIRouter(prefix="/v1", tags=["models"])


@router.get("/models", summary="List models", responses=responses(Unavailable))
async def models(warm: WarmDep) -> ModelList:
    """Every task that can be classified with by its bare name, in the shape of OpenAI's list."""
    return ModelList(data=await list_models(warm.registry))


@router.get("/backbone", summary="Describe the backbone", responses=responses(Unavailable))
async def backbone(warm: WarmDep) -> BackboneReply:
    """The frozen transformer that every capsule here was trained on."""
    return BackboneReply.model_validate(asdict(warm.backbone))
