// Doorbell batching: many requests start with one doorbell and end with one completion. A batch
// that is not submitted has no effect.
//
//   batching
#include <array>
#include <cstring>

#include "pair.h"

namespace {

using namespace example;

constexpr std::uint32_t kReads = 32;
constexpr std::size_t kBytes = 64;

// Requests of one queue pair complete in order, so the completion of the last covers all. Only a
// completion frees slots of the send queue: signal at least one request in send_length.
Status read_all(Pair& pair) {
  const RemoteSpan remote = pair.server.memory.remote();
  Batch batch = pair.client.qp.batch();
  for (std::uint32_t i = 0; i < kReads; ++i) {
    const OpFlags flags = i + 1 == kReads ? OpFlags::kSignaled : OpFlags::kNone;
    batch.read(i, flags, pair.client.memory.local(i * kBytes, kBytes),
               *remote.subspan(i * kBytes, kBytes));
  }
  const std::uint32_t posted = batch.count();
  RKV_RETURN_IF_ERROR(std::move(batch).submit());
  RKV_ASSIGN_OR_RETURN(const WorkCompletion done, pair.client.queue.wait_one(soon()));
  const bool same = std::memcmp(pair.client.memory.bytes().data(),
                                pair.server.memory.bytes().data(), kReads * kBytes) == 0;
  std::printf("%u READs, 1 doorbell, 1 completion (of request %llu): %s\n", posted,
              static_cast<unsigned long long>(done.wr_id), same ? "all bytes there" : "bytes lost");
  return {};
}

// A batch that is destroyed without submit() posts nothing. So a function may return early.
Status give_up(Pair& pair) {
  {
    Batch batch = pair.client.qp.batch();
    batch.write(1, OpFlags::kSignaled, pair.client.memory.local(0, 8),
                *pair.server.memory.remote().subspan(0, 8));
  }  // dropped
  std::array<WorkCompletion, 1> none;
  RKV_ASSIGN_OR_RETURN(const std::size_t count, pair.client.queue.poll(none));
  std::printf("a dropped batch: %zu completions\n", count);
  return {};
}

// A WRITE and the message that announces it. Requests of one queue pair arrive in the order of
// posting. Inline data is copied when it is posted, from memory that need not be registered.
Status write_then_announce(Pair& pair) {
  const ReceiveRequest receive{.wr_id = 1, .buffer = pair.server.memory.local(4096, 64)};
  RKV_RETURN_IF_ERROR(pair.server.qp.post_receives({&receive, 1}));
  std::memcpy(pair.client.memory.bytes().data(), "a record", 8);
  Batch batch = pair.client.qp.batch();
  batch.write(2, OpFlags::kNone, pair.client.memory.local(0, 8),
              *pair.server.memory.remote().subspan(8192, 8));
  batch.send(3, OpFlags::kSignaled, inlined(rkv::as_bytes("at 8192")));
  RKV_RETURN_IF_ERROR(std::move(batch).submit());
  RKV_ASSIGN_OR_RETURN(const WorkCompletion received, pair.server.queue.wait_one(soon()));
  RKV_RETURN_IF_ERROR(pair.client.queue.wait_one(soon()));
  const rkv::MutableBytes bytes = pair.server.memory.bytes();
  std::printf("the message \"%.*s\" found \"%.8s\"\n", static_cast<int>(received.byte_length),
              reinterpret_cast<const char*>(bytes.data() + 4096),
              reinterpret_cast<const char*>(bytes.data() + 8192));
  return {};
}

Status run() {
  RKV_ASSIGN_OR_RETURN(Pair pair, Pair::make({.send_length = kReads, .inline_bytes = 64}));
  std::memset(pair.server.memory.bytes().data(), 'x', kReads * kBytes);
  RKV_RETURN_IF_ERROR(read_all(pair));
  RKV_RETURN_IF_ERROR(give_up(pair));
  return write_then_announce(pair);
}

}  // namespace

int main() {
  return example::report(run());
}
