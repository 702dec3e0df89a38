// The packets on the socket of a shared-memory connection (rdma/transport/shm/protocol.h), as both
// sides take them in: greetings and answers, regions with real memory, and READs of such regions.
// These never leave the announced range nor the existing memory (SHMREG-3,
// PEERREG-1 to PEERREG-3).
//
// The first byte chooses a side; then packets: a byte for the number of descriptors, two for the
// length, and the bytes. What follows a packet of no bytes are READs: key, address, length.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <map>
#include <thread>

#include "common/log.h"
#include "rdma/transport/shm/peer_regions.h"
#include "rdma/transport/shm/protocol.h"
#include "rdma/transport/shm/regions.h"
#include "rdma/transport/shm/ring.h"
#include "rdma/transport/shm/shared.h"
#include "tests/fuzz/fuzz.h"

namespace rkv::fuzz {
namespace {

using namespace rdma::shm;
using rdma::copy_out;

constexpr std::size_t kMemoryBytes = 8192;
constexpr std::size_t kMostPassed = 20;
constexpr std::size_t kMostReadBytes = 3 * kMemoryBytes;

// The memory that is passed: byte i is i, cut. Sealed, or it would not be taken.
int memory() {
  static const int fd = [] {
    const int made = memfd_create("rkv-fuzz", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    std::vector<std::byte> bytes(kMemoryBytes);
    for (std::size_t i = 0; i < bytes.size(); ++i)
      bytes[i] = static_cast<std::byte>(i);
    RKV_CHECK(pwrite(made, bytes.data(), bytes.size(), 0) == ssize_t{kMemoryBytes}, "no memory");
    RKV_CHECK(fcntl(made, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) == 0, "no seals");
    return made;
  }();
  return fd;
}

// Every third descriptor that is passed is not memory.
bool is_memory(std::size_t index) {
  return index % 3 != 2;
}
std::vector<Fd> passed(std::size_t count) {
  std::vector<Fd> out;
  for (std::size_t i = 0; i < count % kMostPassed; ++i)
    out.emplace_back(is_memory(i) ? fcntl(memory(), F_DUPFD_CLOEXEC, 0)
                                  : open("/dev/null", O_RDONLY | O_CLOEXEC));
  return out;
}

Shared& shared() {
  static Shared one("");
  return one;
}

struct Read {
  std::uint32_t key;
  std::uint64_t address;
  std::size_t length;
};
Read next_read(Input& input) {
  const auto key = input.number<std::uint32_t>();
  const auto address = input.number<std::uint64_t>();
  return {.key = key, .address = address, .length = input.number<std::uint16_t>() % kMostReadBytes};
}

// The greetings and answers: what is taken is sound, and no decoder takes another one's packet.
void small_packets(Bytes packet) {
  Hello hello;
  Accept accept;
  Reject reject;
  Gone gone;
  Goodbye goodbye;
  WrongVersion other;
  const int taken = int{decode(packet, PacketKind::kHello, &hello)} +
                    int{decode(packet, PacketKind::kAccept, &accept)} +
                    int{decode(packet, PacketKind::kReject, &reject)} +
                    int{decode(packet, PacketKind::kGone, &gone)} +
                    int{decode(packet, PacketKind::kGoodbye, &goodbye)} +
                    int{decode(packet, PacketKind::kWrongVersion, &other)} +
                    int{decode_regions(packet).has_value()};
  RKV_CHECK(taken <= 1, "one packet, two meanings");
  if (decode(packet, PacketKind::kHello, &hello) && is_sound(hello)) {
    RKV_CHECK(link_bytes(ring_bytes(0), ring_bytes(hello.receive_bytes)) <= std::size_t{17} << 20,
              "a greeting that asks for more than a link may have");
  }
  if (decode(packet, PacketKind::kAccept, &accept) && is_sound(accept)) {
    RKV_CHECK(link_bytes(accept.to_server_bytes, accept.to_client_bytes) <= std::size_t{33} << 20,
              "an answer with more than a link may have");
  }
}

// ---- a server, and the regions of its client

void expect_bytes(MutableBytes got, std::uint64_t offset) {
  for (std::size_t i = 0; i < got.size(); ++i)
    RKV_CHECK(got[i] == static_cast<std::byte>(offset + i), "bytes from another place");
}

// The regions that a client has by the rules of the packets that were taken in.
using Model = std::map<std::uint32_t, RegionEntry>;

void take_into(Model& model, Bytes packet, std::size_t descriptors) {
  if (Gone gone; descriptors == 0 && decode(packet, PacketKind::kGone, &gone)) {
    model.erase(static_cast<std::uint32_t>(gone.key));
    return;
  }
  const auto said = decode_regions(packet);
  if (!said || descriptors != said->count) return;
  for (std::size_t i = 0; i < said->count; ++i) {
    const RegionEntry& entry = said->entries[i];
    if (!is_memory(i) || entry.length == 0 || entry.length > kMemoryBytes) return;
    model.erase(entry.key);
    if (model.size() >= kMaxPeerRegions) return;
    model[entry.key] = entry;
  }
}

bool may_read(const Model& model, const Read& read) {
  const auto found = model.find(read.key);
  if (found == model.end()) return false;
  const RegionEntry& entry = found->second;
  return read.address >= entry.address && read.length <= entry.length &&
         read.address - entry.address <= entry.length - read.length;
}

void as_server(Input& input) {
  PeerRegions regions(&shared());
  Model model;
  for (bool ended = false; !ended && !input.empty();) {
    const auto count = input.number<std::uint8_t>();
    const auto length = input.number<std::uint16_t>();
    if (length == 0) break;
    const Exact packet(input.take(length));
    small_packets(packet.bytes());
    std::vector<Fd> descriptors = passed(count);
    take_into(model, packet.bytes(), descriptors.size());
    Charge charge = shared().budget->take_unasked(descriptors.size());
    ended = regions.take_in(packet.bytes(), descriptors, std::move(charge)) != nullptr;
    RKV_CHECK(regions.size() <= kMaxPeerRegions, "more regions than a client may share");
    RKV_CHECK(regions.size() == model.size(), "other regions than the packets named");
  }
  std::vector<std::byte> to(kMostReadBytes);
  while (!input.empty()) {
    const Read read = next_read(input);
    const MutableBytes out = MutableBytes(to).first(read.length);
    const bool done = regions.read(read.key, read.address, out);
    RKV_CHECK(done == may_read(model, read), "a READ beyond the memory, or a refusal within it");
    if (done) expect_bytes(out, read.address - model.at(read.key).address);
  }
}

// ---- a client, and the regions of its server

void as_client(Input& input) {
  RegionTable regions;
  while (!input.empty()) {
    const auto count = input.number<std::uint8_t>();
    const auto length = input.number<std::uint16_t>();
    if (length == 0) break;
    const Exact packet(input.take(length));
    small_packets(packet.bytes());
    std::vector<Fd> descriptors = passed(count);
    if (!regions.take_in(packet.bytes(), descriptors)) break;
  }
  while (!input.empty()) {
    const Read read = next_read(input);
    const RegionTable::Entry* const entry = regions.find(read.key);
    if (entry == nullptr) continue;
    RKV_CHECK(entry->length <= kMemoryBytes, "a region longer than its memory");
    const std::byte* const at = entry->at(read.address, read.length);
    if (at == nullptr) continue;
    std::vector<std::byte> to(read.length);
    copy_out(to, at);
    expect_bytes(to, read.address - entry->address);
  }
}

}  // namespace
}  // namespace rkv::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  rkv::set_log_level(rkv::LogLevel::kOff);
  rkv::fuzz::Input input(data, size);
  if (input.number<std::uint8_t>() % 2 == 0) {
    rkv::fuzz::as_server(input);
  } else {
    rkv::fuzz::as_client(input);
  }
  // Another thread closes; it is to keep up.
  while (rkv::fuzz::shared().budget->held() > 1000)
    std::this_thread::yield();
  return 0;
}
