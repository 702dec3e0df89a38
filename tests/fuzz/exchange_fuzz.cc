// Frames of the exchange (rdma/extras/group/exchange_frame.h) as sockets bring them, in pieces: a
// reader takes no more memory than its limit, and a header has one form only.
#include <sys/socket.h>

#include <array>
#include <vector>

#include "rdma/extras/group/exchange_frame.h"
#include "tests/fuzz/fuzz.h"

namespace rkv::fuzz {
namespace {

using rdma::detail::decode;
using rdma::detail::decode_length;
using rdma::detail::encode;
using rdma::detail::FrameHeader;
using rdma::detail::FrameReader;
using rdma::detail::Socket;

void frame(Bytes bytes) {
  const auto header = decode(bytes);
  if (!header) return;
  const auto again = encode(*header, bytes.subspan(FrameHeader::kBytes));
  RKV_CHECK(same(Bytes(again).subspan(FrameHeader::kLengthBytes), bytes),
            "a frame that no encoder makes");
  const auto length = decode_length(Bytes(again).first<FrameHeader::kLengthBytes>(), bytes.size());
  RKV_CHECK(length && *length == bytes.size(), "a frame of another length");
}

void stream(Input& input, std::size_t most) {
  std::array<int, 2> ends{};
  RKV_CHECK(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data()) == 0, "socketpair");
  const Socket from(ends[0]);
  const Socket to(ends[1]);
  FrameReader reader;
  while (!input.empty()) {
    const Bytes piece = input.take(1U + input.number<std::uint8_t>());
    if (piece.empty()) break;
    RKV_CHECK(::send(to.fd(), piece.data(), piece.size(), MSG_DONTWAIT) ==
                  static_cast<ssize_t>(piece.size()),
              "send");
    const auto whole = reader.read(from, most);
    RKV_CHECK(reader.frame().size() <= most, "a frame beyond the limit");
    if (!whole) return;
    if (!*whole) continue;
    frame(reader.frame());
    reader.reset();
  }
}

}  // namespace
}  // namespace rkv::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace rkv::fuzz;
  using rkv::rdma::detail::FrameHeader;
  Input input(data, size);
  const auto which = input.number<std::uint8_t>();
  if (which % 2 == 0) {
    // Few inputs are as long as the long limit.
    stream(input, which % 4 == 0 ? 4096 : FrameHeader::kBytes + 16);
  } else {
    const Exact exact(input.rest());
    frame(exact.bytes());
  }
  return 0;
}
