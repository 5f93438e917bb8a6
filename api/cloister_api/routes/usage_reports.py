"""/api/internal/usage-reports: usage as reporters sign it (client contract, section 4)."""

import msgspec
from fastapi import APIRouter, Request, Response

from cloister_api.routes.dependencies import answer, context_of
from cloister_api.routes.responses import says
from cloister_api.schemas.account_answers import ReportTaken
from cloister_api.usage.ingest import PATH

__all__ = ["router"]

router = APIRouter(tags=["usage"])


@router.post(PATH, responses=says(ReportTaken, 400, 401))
async def report_usage(request: Request) -> Response:
    """Take a report; the answer names the events that were not taken."""
    body = await request.body()
    taken = await context_of(request).accounts.ingest.accept(request.headers, body)
    return answer(
        {
            "accepted": taken.accepted,
            "duplicates": taken.duplicates,
            "rejected": [msgspec.structs.asdict(one) for one in taken.rejected],
        }
    )
