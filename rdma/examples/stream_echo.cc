// A byte stream, like TCP's, over message transports: a server sends back all that it receives, and
// a client writes and reads at the same time. Both are coroutines on one thread, which sleeps while
// neither can continue.
//
//   stream_echo                            over each of them in turn
//   stream_echo send_receive|credit_ring   over one
#include <rkv/rdma/message/credit_ring.h>
#include <rkv/rdma/message/send_receive.h>
#include <rkv/rdma/message/stream.h>

#include <algorithm>
#include <future>
#include <string_view>
#include <vector>

#include "pair.h"

namespace {

using namespace example;

constexpr std::size_t kBytes = std::size_t{256} << 10;

// The server runs until the client has closed. Writes are not framed, so it sees only bytes.
template <MessageTransport T>
Task<Result<std::uint64_t>> echo(Stream<T>& stream) {
  std::vector<std::byte> buffer(16384);
  co_return co_await copy_stream(stream, stream, rkv::MutableBytes(buffer));
}

// The client's two coroutines. A single one that writes everything before it reads would also work,
// because a blocked write receives meanwhile. But then all received bytes would stay in memory.
template <MessageTransport T>
Task<Result<std::size_t>> ask(Stream<T>& stream, rkv::Bytes question) {
  co_return co_await stream.write(question);  // in as many messages as needed
}

template <MessageTransport T>
Task<Result<std::size_t>> listen_to(Stream<T>& stream, rkv::MutableBytes answer) {
  std::size_t length = 0;
  while (length != answer.size()) {
    const Result<std::size_t> count = co_await stream.read(answer.subspan(length));
    if (!count) co_return std::unexpected(count.error());
    if (*count == 0) break;  // the server has closed
    length += *count;
  }
  // Waits until the server has all writes, then ends the connection: the server's read returns 0.
  const Result<std::size_t> ended = co_await stream.shutdown();
  if (!ended) co_return std::unexpected(ended.error());
  co_return length;
}

// Runs over any transport: only the builder differs.
template <TransportBuilder Builder>
Status echo_over(const char* name, const Builder& builder) {
  RKV_ASSIGN_OR_RETURN(const SocketAddress address, address_of_first_active());
  RKV_ASSIGN_OR_RETURN(auto listener, builder.listen(address));
  const SocketAddress here = listener.address();
  // Both calls block, and each waits for the other.
  auto connecting = std::async(std::launch::async, [&] { return builder.connect(here, soon()); });
  auto accepted = builder.accept(listener, soon());
  auto connected = connecting.get();
  if (!connected) return std::unexpected(connected.error());
  if (!accepted) return std::unexpected(accepted.error());

  RKV_ASSIGN_OR_RETURN(const auto executor, EpollExecutor::create());
  Stream server(std::move(*accepted), *executor);
  Stream client(std::move(*connected), *executor);
  std::vector<std::byte> question(kBytes);
  std::ranges::generate(question, [i = 0U]() mutable { return std::byte(i++ * 7 % 251); });
  std::vector<std::byte> answer(kBytes);

  // A coroutine starts here, and continues whenever its stream has an event for it.
  auto echoed = echo(server);
  auto asked = ask(client, question);
  auto heard = listen_to(client, answer);
  RKV_RETURN_IF_ERROR(rkv::rdma::run(*executor, soon(), echoed, asked, heard));
  RKV_ASSIGN_OR_RETURN(const std::uint64_t by_server, echoed.take());
  RKV_ASSIGN_OR_RETURN(const std::size_t written, asked.take());
  RKV_ASSIGN_OR_RETURN(const std::size_t read, heard.take());
  std::printf("%s: %zu bytes written, %llu echoed, %zu read: %s\n", name, written,
              static_cast<unsigned long long>(by_server), read,
              answer == question ? "the same" : "others");
  return {};
}

Status run(std::string_view only) {
  const auto wanted = [&](std::string_view name) { return only.empty() || only == name; };
  bool known = false;
  if (wanted("send_receive")) {
    known = true;
    RKV_RETURN_IF_ERROR(
        echo_over("send_receive", SendReceiveBuilder{SendReceiveOptions::stream(4)}));
  }
  if (wanted("credit_ring")) {
    known = true;
    RKV_RETURN_IF_ERROR(echo_over("credit_ring", CreditRingBuilder{}));
  }
  if (!known) return rkv::fail(rkv::Code::kInvalidArgument, "send_receive or credit_ring");
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  return example::report(run(argc > 1 ? argv[1] : ""));
}
