#include "client/engine/packed_adds.h"

#include <algorithm>
#include <optional>

namespace rkv::client {

namespace {

// Whether every byte of the answer is valid (PACK-2).
bool has_results(const Response& answer, std::size_t count) {
  ResultReader reader(answer.value);
  for (std::size_t i = 0; i < count; ++i) {
    if (!reader.next(Opcode::kAdd)) return false;
  }
  return reader.at_end();
}

void fail_all(const PackedAdds::Call& call, PackedAdds::Indices packed, const Error& error) {
  for (const std::size_t index : packed)
    call.results[index] = std::unexpected(error);
}

}  // namespace

PackedAdds::Sent PackedAdds::send(const Call& call, Indices indices) {
  connector_.check_link();
  const std::size_t count = session_.usable() ? fill(call, indices) : 0;
  if (count < 2) return {.taken = 1, .alone = indices.first(1)};
  return ask(call, indices.first(count));
}

std::size_t PackedAdds::fill(const Call& call, Indices indices) {
  const ConnectAccept& accept = session_.link.accept();
  const std::size_t room =
      std::min<std::size_t>(bytes_.size(), accept.max_sent_bytes - kRequestHeaderBytes);
  const std::size_t most = std::min<std::size_t>(accept.max_packed, indices.size());
  PackWriter pack(MutableBytes(bytes_).first(room));
  std::array<std::byte, kCounterBytes> summand;
  while (pack.count() < most) {
    const CounterAddition& one = call.additions[indices[pack.count()]];
    store_le(summand.data(), one.summand);
    const Request add{
        .opcode = Opcode::kAdd, .key = as_bytes(one.counter->key()), .value = summand};
    if (!pack.has_room(add)) break;
    pack.add(add);
  }
  pack_ = pack.finish();
  return pack.count();
}

// A pack that may have been carried out fails like a single addition (CTR-1). A pack that was not
// carried out is dropped: its first addition is sent alone, which connects, and the others go in
// packs for that server.
PackedAdds::Sent PackedAdds::ask(const Call& call, Indices packed) {
  if (call.deadline.passed()) {
    fail_all(call, packed,
             {.code = Code::kTimeout, .text = "the deadline passed before this was sent"});
    return {.taken = packed.size(), .alone = {}};
  }
  Request request{.opcode = Opcode::kPack};
  request.value = pack_;
  const auto reply = requester_.ask_here(request, call.deadline);
  if (reply) {
    return {.taken = packed.size(), .alone = on_answer(call, packed, reply->response())};
  }
  const Error& error = reply.error();
  if (error.code == Code::kDisconnected && error.write == WriteOutcome::kNotApplied) {
    return {.taken = 1, .alone = packed.first(1)};
  }
  fail_all(call, packed, error);
  return {.taken = packed.size(), .alone = {}};
}

// No part of an answer counts before all of it was read. An addition that was put off gets the
// error, too: the deadline may pass before it is sent again.
PackedAdds::Indices PackedAdds::on_answer(const Call& call, Indices packed,
                                          const Response& answer) {
  if (!has_results(answer, packed.size())) {
    session_.link.break_off("its answer does not have the results of the pack");
    fail_all(call, packed,
             {.code = Code::kDisconnected,
              .write = WriteOutcome::kMayHaveHappened,
              .text = "the connection was ended: the server's answer does not fit the pack"});
    return {};
  }
  ResultReader reader(answer.value);
  std::size_t left = 0;
  std::optional<Response> busy;
  for (const std::size_t index : packed) {
    const Response result = *reader.next(Opcode::kAdd);
    if (result.code == 0) {
      requester_.note_write(result, Durability::kDefault);
      session_.learn_place(as_bytes(call.additions[index].counter->key()), result);
      call.results[index] = session_.counter_in(result);
      continue;
    }
    const Error error = requester_.refused(result);
    call.results[index] = std::unexpected(error);
    if (!Requester::is_put_off(error, call.deadline)) continue;
    alone_[left++] = index;
    const bool is_alone = (result.flags & Response::kAlone) != 0;
    if (error.code == Code::kBusy && !is_alone) busy = result;
  }
  if (busy && !requester_.wait_busy(*busy, call.deadline)) return {};
  return Indices(alone_).first(left);
}

}  // namespace rkv::client
