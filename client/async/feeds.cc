#include "client/async/feeds.h"

#include "client/engine/requester.h"
#include "client/link/user_memory.h"

namespace rkv::client {

std::size_t QueuedGets::take(std::span<GetItem> out) {
  std::size_t count = 0;
  for (; count < out.size() && !list_.empty(); ++count) {
    AsyncOperation& operation = list_.pop_front();
    operation.place_ = AsyncOperation::Place::kTaken;
    out[count] = {.key = operation.request.key,
                  .token = token_of(operation),
                  .at_least = operation.request.get.at_least};
    if (operation.memory_ == nullptr) continue;
    out[count].into = operation.request.into;
    out[count].local_key = operation.memory_->region().local_key();
  }
  return count;
}

std::uint64_t QueuedWrites::take() {
  AsyncOperation& operation = list_.pop_front();
  operation.place_ = AsyncOperation::Place::kTaken;
  return token_of(operation);
}

void QueuedGets::done(std::uint64_t token, const Result<ValueView>& result) {
  if (!result) return ends_->end(operation_of(token), std::unexpected(result.error()));
  ends_->end(
      operation_of(token),
      Outcome{.value = *result, .version = result->version, .durability = result->durability});
}

void QueuedWrites::done(std::uint64_t token, const Response& answer) {
  AsyncOperation& operation = operation_of(token);
  Outcome outcome;
  outcome.version = answer.version.bits;
  outcome.durability = session_->durability_of(answer);
  const auto kind = operation.request.kind;
  if (kind == AsyncRequest::Kind::kAdd || kind == AsyncRequest::Kind::kSwap) {
    outcome.number = session_->counter_in(answer).number;
    outcome.swapped = (answer.flags & Response::kSwapped) != 0;
  }
  ends_->end(operation, outcome);
}

void QueuedWrites::failed(std::uint64_t token, const Error& error) {
  ends_->end(operation_of(token), std::unexpected(error));
}

Status QueuedWrites::prepare(AsyncOperation& operation) {
  const AsyncRequest& request = operation.request;
  if (request.kind == AsyncRequest::Kind::kPut) {
    const auto valid = put_request(request.key, request.value, request.put);
    if (!valid) return std::unexpected(valid.error());
  }
  store_le(operation.numbers_.data(), request.operand);
  store_le(operation.numbers_.data() + sizeof request.operand, request.desired);
  return {};
}

Request QueuedWrites::request_of(const AsyncOperation& operation) {
  const AsyncRequest& request = operation.request;
  Request made{.durability = request.put.durability, .key = as_bytes(request.key)};
  switch (request.kind) {
    case AsyncRequest::Kind::kPut:
      return *put_request(request.key, request.value, request.put);  // prepare() has checked it
    case AsyncRequest::Kind::kRemove:
      made.opcode = Opcode::kRemove;
      if (request.put.if_version) {
        made.condition = Condition::kIfVersion;
        made.expected = {*request.put.if_version};
      }
      break;
    case AsyncRequest::Kind::kAdd:
      made.opcode = Opcode::kAdd;
      made.value = Bytes(operation.numbers_).first(kCounterBytes);
      break;
    case AsyncRequest::Kind::kSwap:
      made.opcode = Opcode::kSwap;
      made.value = Bytes(operation.numbers_);
      break;
    case AsyncRequest::Kind::kGet:
      break;
  }
  return made;
}

}  // namespace rkv::client
