// Attacks of a client on the server's memory with requests that no client library makes: WRITEs,
// atomics and READs outside of its windows, and keys that it was not given. Each is posted to the
// device itself. Verbs only: over shared memory a client maps what it may READ, and writes through
// a mapping of its own.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "common/layout.h"
#include "common/wire.h"
#include "rkv/rdma/connect.h"
#include "rkv/rdma/queue_pair.h"
#include "tests/system/world.h"

namespace rkv::testing_support {
namespace {

using rdma::Batch;
using rdma::OpFlags;
using rdma::RegisteredSpan;
using rdma::RemoteSpan;
using ::testing::AnyOf;
using ::testing::UnorderedElementsAre;

constexpr std::uint64_t kWordBytes = 8;

// A connection to the server. Its queue pair ends with the first request that is refused.
struct Peer {
  rdma::ProtectionDomain pd;
  rdma::CompletionChannel channel;
  rdma::CompletionQueue queue;
  rdma::MemoryRegion memory;
  rdma::CmConnection link;
  ConnectAccept accept;

  static Result<Peer> connect(const std::string& server, const Deadline& deadline) {
    RKV_ASSIGN_OR_RETURN(const rdma::HostPort where, rdma::parse_host_port(server));
    RKV_ASSIGN_OR_RETURN(const auto addresses, rdma::resolve(where, deadline));
    RKV_ASSIGN_OR_RETURN(auto connector, rdma::Connector::resolve(addresses.front(), {}, deadline));
    const rdma::Device device = connector.device();
    RKV_ASSIGN_OR_RETURN(auto pd, rdma::ProtectionDomain::allocate(device));
    RKV_ASSIGN_OR_RETURN(auto channel, rdma::CompletionChannel::create(device));
    RKV_ASSIGN_OR_RETURN(auto queue, rdma::CompletionQueue::create(device, {.channel = &channel}));
    RKV_ASSIGN_OR_RETURN(auto memory,
                         rdma::MemoryRegion::allocate(pd, 4096, rdma::AccessFlags::kLocalWrite));
    RKV_ASSIGN_OR_RETURN(auto pair, rdma::QueuePair::create(pd, queue, queue, {}));
    std::byte data[kConnectRequestBytes];
    encode(ConnectRequest{.credits_wanted = 4, .name = "hostile"}, data);
    RKV_ASSIGN_OR_RETURN(
        auto link,
        std::move(connector).connect(std::move(pair), {.reads_as_initiator = 4}, data, deadline));
    RKV_ASSIGN_OR_RETURN(const ConnectAccept accept, decode_connect_accept(link.peer_data.bytes()));
    return Peer{std::move(pd),     std::move(channel), std::move(queue),
                std::move(memory), std::move(link),    accept};
  }
};

RemoteSpan span_of(const RemoteWindow& window) {
  return {.address = window.address, .length = window.length, .rkey = window.remote_key};
}

class HostileMemory : public ::testing::Test {
 protected:
  // It ends its connections more often than a client may.
  HostileMemory()
      : server_({"--memory", "32MiB", "--max-offences", "0"}), client_(server_.client()) {
    EXPECT_TRUE(client_.put("mine", "untouched"));
    auto counter = client_.open_counter("counted");
    EXPECT_TRUE(counter) << to_string(counter.error());
    EXPECT_EQ(client_.incr(*counter, 7)->number, 7);
    renew();
    root_ = read_root();
  }
  void TearDown() override {
    EXPECT_EQ(read_root(), root_) << "the root has changed";
    EXPECT_EQ(client_.get("mine")->value, "untouched");
    EXPECT_EQ(client_.get_counter("counted")->number, 7);
    EXPECT_EQ(client_.stats().reconnects, 0U);
    server_.stop_and_check();
  }

  using Post = std::function<void(Batch&, const RegisteredSpan& local)>;
  // Returns the outcome of one request of `bytes`. It has a new connection, unless the previous
  // request was not refused.
  ibv_wc_status attempt(const Post& post, std::size_t bytes = kWordBytes) {
    if (broken_) renew();
    Batch batch = peer_->link.qp.batch();
    post(batch, peer_->memory.local(0, bytes));
    EXPECT_TRUE(std::move(batch).submit());
    rdma::WorkCompletion done;
    const auto count = peer_->queue.wait({&done, 1}, soon());
    EXPECT_TRUE(count && *count == 1) << "no completion came";
    broken_ = done.status != IBV_WC_SUCCESS;
    return done.status;
  }
  ibv_wc_status read(const RemoteSpan& from, std::size_t bytes = kWordBytes) {
    return attempt(
        [&](Batch& batch, const RegisteredSpan& local) {
          batch.read(1, OpFlags::kSignaled, local, from);
        },
        bytes);
  }
  ibv_wc_status write(const RemoteSpan& to) {
    return attempt([&](Batch& batch, const RegisteredSpan& local) {
      batch.write(1, OpFlags::kSignaled, local, to);
    });
  }
  ibv_wc_status fetch_add(const RemoteSpan& word) {
    return attempt([&](Batch& batch, const RegisteredSpan& local) {
      batch.fetch_add(1, OpFlags::kSignaled, local, word, 0);
    });
  }

  // The extents that the table in the root names: of the index, and of records.
  std::vector<ExtentEntry> extents() {
    std::vector<ExtentEntry> found;
    for (std::uint64_t at = kExtentTableOffset; at < accept().root.length;
         at += kExtentEntryBytes) {
      ExtentEntry entry;
      RemoteSpan place = span_of(accept().root);
      place.address += at;
      EXPECT_EQ(read(place, sizeof entry), IBV_WC_SUCCESS);
      std::memcpy(&entry, peer_->memory.bytes().data(), sizeof entry);
      if (entry.kind == ExtentEntry::kUnused) break;
      found.push_back(entry);
    }
    return found;
  }

  const ConnectAccept& accept() const { return peer_->accept; }
  Deadline soon() const { return Deadline::after_ms(clock_, 20'000); }

  Server server_;
  Client client_;

 private:
  void renew() {
    peer_.reset();
    auto peer = Peer::connect(server_.address(), soon());
    ASSERT_TRUE(peer) << to_string(peer.error());
    peer_.emplace(std::move(*peer));
    broken_ = false;
  }
  // The epoch and the shape of the store, which do not change.
  std::vector<std::byte> read_root() {
    EXPECT_EQ(read(span_of(accept().root)), IBV_WC_SUCCESS);
    const auto bytes = peer_->memory.bytes().first(kWordBytes);
    return {bytes.begin(), bytes.end()};
  }

  SteadyClock clock_;
  std::optional<Peer> peer_;
  bool broken_ = false;
  std::vector<std::byte> root_;
};

// The device that refuses names one of these.
#define EXPECT_REFUSED(status) \
  EXPECT_THAT(status, AnyOf(IBV_WC_REM_ACCESS_ERR, IBV_WC_REM_INV_REQ_ERR, IBV_WC_REM_OP_ERR))

TEST_F(HostileMemory, NoWindowTakesAWrite) {
  ASSERT_NE(accept().hints.length, 0U);
  ASSERT_NE(accept().counters.length, 0U);
  EXPECT_REFUSED(write(span_of(accept().root)));
  EXPECT_REFUSED(write(span_of(accept().hints)));
  EXPECT_REFUSED(write(span_of(accept().counters)));
}

TEST_F(HostileMemory, AtomicsAreForHintsAndCellsOnly) {
  EXPECT_EQ(fetch_add(span_of(accept().hints)), IBV_WC_SUCCESS);
  EXPECT_EQ(fetch_add(span_of(accept().counters)), IBV_WC_SUCCESS);
  EXPECT_REFUSED(fetch_add(span_of(accept().root)));
  for (const RemoteWindow& window : {accept().hints, accept().counters}) {
    RemoteSpan word = span_of(window);
    word.address += window.length;  // behind the window
    EXPECT_REFUSED(fetch_add(word));
    word = span_of(window);
    word.address -= kWordBytes;
    EXPECT_REFUSED(fetch_add(word));
    word = span_of(window);
    word.address += 4;
    EXPECT_REFUSED(fetch_add(word)) << "not aligned";
  }
}

// The records, and the groups that say where they are.
TEST_F(HostileMemory, ExtentsAreReadAndNotChanged) {
  std::set<std::uint32_t> kinds;
  for (const ExtentEntry& extent : extents()) {
    if (!kinds.insert(extent.kind).second) continue;
    const RemoteSpan place{.address = extent.address,
                           .length = std::uint64_t{extent.units} * kUnitBytes,
                           .rkey = extent.remote_key};
    EXPECT_EQ(read(place), IBV_WC_SUCCESS) << "kind " << extent.kind;
    EXPECT_REFUSED(write(place)) << "kind " << extent.kind;
    EXPECT_REFUSED(fetch_add(place)) << "kind " << extent.kind;
    RemoteSpan behind = place;
    behind.address += round_up(place.length, std::uint64_t{4096});
    EXPECT_REFUSED(read(behind)) << "kind " << extent.kind;
  }
  EXPECT_THAT(kinds, UnorderedElementsAre(ExtentEntry::kIndex, ExtentEntry::kData));
}

TEST_F(HostileMemory, AKeyOpensItsOwnRegionOnly) {
  EXPECT_EQ(read(span_of(accept().hints)), IBV_WC_SUCCESS);
  RemoteSpan place = span_of(accept().root);
  for (const std::uint32_t key : {accept().hints.remote_key, accept().counters.remote_key}) {
    place.rkey = key;
    EXPECT_REFUSED(read(place));
    EXPECT_REFUSED(fetch_add(place));
  }
  place = span_of(accept().hints);
  place.rkey = accept().root.remote_key;
  EXPECT_REFUSED(read(place));
  place = span_of(accept().root);
  place.address += accept().root.length;
  place.address = round_up(place.address, std::uint64_t{4096});  // behind the region's last page
  EXPECT_REFUSED(read(place));
}

// Neighbouring keys, as one would guess them, at an address that every client knows. Which memory
// has a remote right at all is decided where it is registered
// (server/clients/network/endpoints.cc).
TEST_F(HostileMemory, GuessedKeysOpenNothing) {
  constexpr std::uint32_t kGuesses = 16;
  const RemoteSpan root = span_of(accept().root);
  for (std::uint32_t i = 1; i <= kGuesses; ++i) {
    for (const std::uint32_t step : {1U, 256U}) {  // the byte of the key itself; its place
      RemoteSpan guess = root;
      guess.rkey += i * step;
      EXPECT_REFUSED(read(guess)) << guess.rkey;
      EXPECT_REFUSED(write(guess)) << guess.rkey;
    }
  }
}

}  // namespace
}  // namespace rkv::testing_support
