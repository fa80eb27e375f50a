"""From a request on text to a generation on ids: everything that can be wrong with it is found here."""

from __future__ import annotations

import secrets

from gateway.served import ServedModel
from gateway.workload import workload_of
from outrider.rpc.errors import ContextExceeded, InvalidArgument, NotFound
from outrider.sampling.parameters import InvalidParameter, SamplingParameters
from outrider.text.chat import InvalidChat
from outrider.wire import scheduler
from outrider.wire.inference import MAX_STOPS, Chat, GenerateRequest, Prompt, PromptIds

MAX_WORKLOAD_LENGTH = 64
RANDOM_SEED_BITS = 53
"""A seed that was drawn fits a double, so that no JSON reader of the answer bends it."""


def check_model(name: str, served: ServedModel) -> None:
    """Raise NotFound, naming what is served, when another model is asked for."""
    if name not in ("", served.info.model):
        raise NotFound(
            f"model {name!r} is not served; ask for {served.info.model!r}, or leave model empty",
            field="model",
        )


def prepare(
    request: GenerateRequest, served: ServedModel, *, max_prompt_bytes: int, tenant: str = ""
) -> scheduler.GenerateRequest:
    """Check the request and turn its prompt into ids.

    A long prompt takes a while: call it in a thread. Raises InvalidArgument and ContextExceeded, naming the
    field and the fix.
    """
    _check_stops(request.stop)
    _check_workload(request.workload)
    _check_sampling(request.sampling, served.info.vocab_size)
    prompt = _ids_of(request.prompt, served, max_prompt_bytes)
    if len(prompt) >= served.info.context_length:
        field = _field_of(request.prompt)
        raise ContextExceeded(
            f"{field} has {len(prompt)} tokens, but the model's context of {served.info.context_length} "
            f"tokens must hold them and the answer; shorten {field}",
            field=field,
        )
    return scheduler.GenerateRequest(
        prompt=prompt,
        sampling=request.sampling,
        seed=secrets.randbits(RANDOM_SEED_BITS) if request.seed is None else request.seed,
        choice=request.choice,
        speculation=request.speculation,
        tenant=tenant,
        cache_salt=request.cache_salt,
        store=request.store,
        workload=request.workload or workload_of(_text_of(request.prompt)),
    )


def _check_workload(label: str) -> None:
    if len(label) > MAX_WORKLOAD_LENGTH or not label.isprintable():
        raise InvalidArgument(
            f"workload is a printable label of at most {MAX_WORKLOAD_LENGTH} characters, such as code",
            field="workload",
        )


def _text_of(prompt: Prompt | None) -> str:
    """What was said so far: "make it shorter" says nothing by itself, and ids do not at all."""
    match prompt:
        case Chat():
            return "\n".join(turn.content for turn in prompt.messages)
        case str():
            return prompt
        case _:
            return ""


def _check_sampling(sampling: SamplingParameters, vocab_size: int) -> None:
    try:
        sampling.validate()
        sampling.validate_ids(vocab_size)
    except InvalidParameter as error:
        raise InvalidArgument(error.message, field=f"sampling.{error.field}") from error


def _check_stops(stops: tuple[str, ...]) -> None:
    if len(stops) > MAX_STOPS:
        raise InvalidArgument(f"stop has {len(stops)} strings; give at most {MAX_STOPS}", field="stop")
    if not all(stops):
        raise InvalidArgument("stop holds an empty string, which is everywhere; remove it", field="stop")


def _ids_of(prompt: Prompt | None, served: ServedModel, max_prompt_bytes: int) -> tuple[int, ...]:
    encoded: tuple[int, ...] = ()
    match prompt:
        case None:
            raise InvalidArgument("there is no input; set prompt, chat or prompt_ids", field="prompt")
        case PromptIds(ids):
            _check_ids(ids, served.info.vocab_size)
            return ids
        case Chat():
            text = _render(prompt, served, max_prompt_bytes)
            # The template has put the special tokens where they belong.
            encoded = served.tokenizer.encode(text, add_special_tokens=False)
        case str():
            _check_text(prompt, max_prompt_bytes)
            encoded = served.tokenizer.encode(prompt, add_special_tokens=True)
    if not encoded:
        field = _field_of(prompt)
        raise InvalidArgument(f"{field} has no tokens for this model; give more text", field=field)
    return encoded


def _check_text(text: str, max_bytes: int) -> None:
    if not text:
        raise InvalidArgument("prompt is empty; give some text", field="prompt")
    _check_size(len(text.encode()), max_bytes, "prompt")


def _check_size(size_bytes: int, max_bytes: int, field: str) -> None:
    if size_bytes > max_bytes:
        raise InvalidArgument(f"{field} has {size_bytes} bytes; send at most {max_bytes}", field=field)


def _check_ids(ids: tuple[int, ...], vocab_size: int) -> None:
    if not ids:
        raise InvalidArgument("prompt_ids is empty; give at least one id", field="prompt_ids")
    for token_id in ids:
        if not 0 <= token_id < vocab_size:
            raise InvalidArgument(
                f"prompt_ids holds {token_id}, but the model's ids are 0 to {vocab_size - 1}; remove it",
                field="prompt_ids",
            )


def _render(chat: Chat, served: ServedModel, max_bytes: int) -> str:
    if not chat.messages:
        raise InvalidArgument("chat has no messages; give at least one", field="chat.messages")
    for index, message in enumerate(chat.messages):
        if not message.role:
            field = f"chat.messages[{index}].role"
            raise InvalidArgument(f"{field} is empty; give system, user or assistant", field=field)
    size_bytes = sum(len(message.content.encode()) for message in chat.messages)
    _check_size(size_bytes, max_bytes, "chat")
    if served.template is None:
        why = served.template_problem or "the model has no chat template"
        raise InvalidArgument(f"{why}; send the text as prompt instead of chat", field="chat")
    try:
        return served.template.render([(message.role, message.content) for message in chat.messages])
    except InvalidChat as error:
        raise InvalidArgument(
            f"{error}; change the messages, or send the text as prompt", field="chat"
        ) from error


def _field_of(prompt: Prompt | None) -> str:
    match prompt:
        case Chat():
            return "chat"
        case PromptIds():
            return "prompt_ids"
        case _:
            return "prompt"
