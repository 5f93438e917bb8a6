"""A record of the model catalog with every field."""

from typing import Any

__all__ = ["RECORD"]

RECORD: dict[str, Any] = {
    "modelName": "north-7b",
    "name": "North 7B",
    "nameShort": "North",
    "description": "A small model",
    "details": "",
    "recommendedUse": "chats",
    "parameters": "7B",
    "supportedLanguages": "en, de",
    "image": "north.svg",
    "repo": "acme/north",
    "type": "chat",
    "endpoint": "/v1/chat/completions",
    "endpoints": ["/v1/chat/completions", "/v1/responses"],
    "usageMetric": "tokens",
    "pricing": {
        "inputTokenPricePer1M": 0.15,
        "outputTokenPricePer1M": 1,
        "requestPrice": 0,
        "cachedInputTokenPricePer1M": 0.05,
    },
    "contextWindowTokens": 128000,
    "createdAt": 1767225600,
    "paid": True,
    "multimodal": False,
    "toolCalling": True,
    "chat": True,
    "experimental": False,
    "deprecated": True,
    "deprecationDate": "2027-01-31",
    "safety": {
        "score": 90,
        "categoryBreakdown": {"childEndangerment": 99, "massViolence": 98, "selfHarm": 97},
        "metadata": {"date": "2026-10"},
    },
    "chatConfig": {
        "attributes": ["smart", "fast"],
        "contextWindowTokens": 100000,
        "descriptionShort": "small",
        "intelligence": {"off": 10, "on": 20, "low": 15, "medium": 20, "high": 30},
        "reasoningConfig": {
            "defaultEnabled": True,
            "supportsEffort": True,
            "supportsToggle": True,
            "reasoningHistoryPolicy": "tool-call-only",
            "effortMap": {"low": "l", "medium": "m", "high": "max"},
            "params": {
                "/v1/chat/completions": {
                    "enable": {"reasoning": {"effort": "$EFFORT"}},
                    "disable": {"reasoning": None},
                }
            },
        },
    },
}
"""Read by `cloister_api.catalog`."""
