#include "rdma/transport/shm/connection.h"

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <bit>
#include <string_view>
#include <utility>

#include "common/check.h"
#include "common/log.h"

namespace rkv::rdma::shm {
namespace {

using Kind = Completion::Kind;
using CompletionStatus = Completion::Status;

// Packets taken from a socket at a time. A client sends wake-up bytes, one per sleep of ours; a
// server may announce many regions. Processing a client's regions takes longest: about 50 us per
// packet.
constexpr int kPeerNewsAtOnce = 16;
constexpr int kPeerRegionPacketsAtOnce = 1;
constexpr int kNewsAtOnce = 4096;
// Before a READ: its region may be announced after all other regions that a client may have, and
// after wake-up bytes.
constexpr int kPeerNewsBeforeRead = 1024;
static_assert(kPeerNewsBeforeRead > static_cast<int>(2 * kMaxPeerRegions));

RingWriter writer_of(const Link& link) {
  auto* header = link.memory.as<LinkHeader>();
  std::byte* rings = link.memory.data() + kLinkHeaderBytes;
  return link.passive
             ? RingWriter(header->to_client, rings + link.to_server_bytes, link.to_client_bytes)
             : RingWriter(header->to_server, rings, link.to_server_bytes);
}

bool is_goodbye(Bytes packet, const std::string& peer) {
  Goodbye goodbye;
  if (!decode(packet, PacketKind::kGoodbye, &goodbye) || goodbye.length > goodbye.reason.size()) {
    return false;
  }
  log_warn(EventName("server_refused"), "the server {} closed the connection: {}", peer,
           std::string_view(goodbye.reason.data(), goodbye.length));
  return true;
}

RingReader reader_of(const Link& link, std::uint64_t longest) {
  auto* header = link.memory.as<LinkHeader>();
  const std::byte* rings = link.memory.data() + kLinkHeaderBytes;
  return link.passive ? RingReader(header->to_server, rings, link.to_server_bytes, longest)
                      : RingReader(header->to_client, rings + link.to_server_bytes,
                                   link.to_client_bytes, longest);
}

}  // namespace

// ---- beginning and end ----

Result<ShmConnection::Reservation> ShmConnection::Reservation::make(
    ShmQueue& queue, const ConnectionOptions& options) {
  if (options.sends_in_flight == 0) {
    return rkv::fail(Code::kInvalidArgument, "a connection needs sends_in_flight of at least 1");
  }
  // One more for kDisconnected.
  RKV_ASSIGN_OR_RETURN(auto room, queue.room().reserve(options.sends_in_flight + 1));
  return Reservation(queue, std::move(room));
}

ShmConnection::ShmConnection(Reservation reservation, const ConnectionOptions& options, Link link)
    : reservation_(std::move(reservation)),
      queue_(&reservation_.queue()),
      // READs are complete when post() returns, so that only sends_in_flight limits them.
      limits_{.reads_in_flight = options.sends_in_flight,
              .sends_in_flight = options.sends_in_flight,
              .inline_bytes = options.inline_bytes,
              .reads_at_once = !link.passive},
      link_(std::move(link)),
      out_(writer_of(link_)),
      in_(reader_of(link_, queue_->receive_bytes())),
      peer_sleeps_(link_.passive ? &header().client_sleeps
                                 : link_.peer_page.as<const std::uint64_t>()),
      pending_(std::bit_ceil(options.sends_in_flight)) {}

void ShmConnection::attach() {
  attached_ = true;
  queue_->attach(*this);
}

ShmConnection::~ShmConnection() {
  queue_->shared().exporter.unsubscribe(socket());
  if (!attached_) return;
  queue_->process_control_events();
  out_.close();
  shutdown(socket(), SHUT_RDWR);
  queue_->stop_watching(*this);
  queue_->detach(*this);
}

void ShmConnection::abort() {
  alive_.store(false, std::memory_order_release);
  aborted_.store(true, std::memory_order_release);
  out_.close();
  shutdown(socket(), SHUT_RDWR);
  queue_->wake_for_control();
}

void ShmConnection::end(Ending how) {
  if (reported_ || (ending_ != Ending::kNone && how != Ending::kDead)) return;
  if (ending_ == Ending::kNone) {
    alive_.store(false, std::memory_order_release);
    out_.close();
    shutdown(socket(), SHUT_RDWR);  // ends the peer's sleep
    queue_->stop_watching(*this);
    while (pending_first_ != pending_end_)
      report(pending_[pending_first_++ & (pending_.size() - 1)], CompletionStatus::kFlushed);
    in_.freeze();
  }
  ending_ = how;
  if (how == Ending::kDead) report_end();
}

void ShmConnection::report_end() {
  reported_ = true;
  queue_->append({.kind = Kind::kDisconnected, .connection = this});
}

// ---- operations ----

void ShmConnection::report(const Operation& operation, CompletionStatus status) {
  if (status == CompletionStatus::kOk && !operation.signaled) return;
  ++unpolled_;
  queue_->append({.kind = completion_kind(operation.kind),
                  .status = status,
                  .connection = this,
                  .context = operation.context});
}

// Reports the failed operation, flushes the operations after it, and ends the connection.
void ShmConnection::fail(const Operation& operation, Done how, std::span<const Operation> behind) {
  const bool refused = how == Done::kRefused;
  report(operation, refused ? CompletionStatus::kRemoteAccess : CompletionStatus::kFailed);
  for (const Operation& one : behind)
    report(one, CompletionStatus::kFlushed);
  end(refused ? Ending::kDead : Ending::kPeerLeft);
}

Result<std::size_t> ShmConnection::post(std::span<const Operation> batch) {
  if (!alive()) return rkv::fail(Code::kDisconnected, "the connection is down");
  const std::uint64_t taken = unpolled_ + (pending_end_ - pending_first_);
  batch = batch.first(std::min<std::size_t>(limits_.sends_in_flight - taken, batch.size()));
  if (!link_.passive && link_.host.regions_gone() != regions_gone_) [[unlikely]]
    read_news();
  std::size_t i = 0;
  Done done = Done::kYes;
  for (; i < batch.size(); ++i) {
    // Pending operations go first.
    done = pending_first_ == pending_end_ ? execute(batch[i]) : Done::kNotYet;
    if (done == Done::kNotYet) {
      hold(batch[i]);
    } else if (done != Done::kYes) {
      break;
    }
  }
  if (out_.publish()) wake_peer();
  if (i < batch.size()) [[unlikely]]
    fail(batch[i], done, batch.subspan(i + 1));
  return batch.size();
}

// After a failure the caller posts the READ, which fails again with a completion that says why.
// post() also finds a region that was announced meanwhile.
bool ShmConnection::read_at_once(MutableBytes to, std::uint64_t remote_address,
                                 std::uint32_t remote_key) {
  if (link_.passive || !alive() || pending_first_ != pending_end_) return false;
  if (link_.host.regions_gone() != regions_gone_) [[unlikely]]
    read_news();
  const RegionTable::Entry* const region = link_.regions.find(remote_key);
  if (region == nullptr) return false;
  const std::byte* const from = region->at(remote_address, to.size());
  if (from == nullptr) return false;
  copy_out(to, from);
  return link_.host.alive_after_copy() && !in_.closed();  // last, as in execute_remote()
}

void ShmConnection::prefetch(std::uint64_t remote_address, std::uint32_t remote_key,
                             std::size_t length) {
  constexpr std::size_t kLine = 64;
  constexpr std::size_t kMostBytes = 4 * kLine;  // the processor prefetches the rest itself
  const RegionTable::Entry* const region = link_.regions.find(remote_key);
  const std::byte* const from = region == nullptr ? nullptr : region->at(remote_address, length);
  if (from == nullptr) return;
  for (std::size_t offset = 0; offset < std::min(length, kMostBytes); offset += kLine)
    __builtin_prefetch(from + offset);
}

ShmConnection::Done ShmConnection::execute(const Operation& operation) {
  const Done done = operation.kind == Operation::Kind::kSend ? execute_send(operation)
                                                             : execute_remote(operation);
  if (done == Done::kYes) report(operation, CompletionStatus::kOk);
  return done;
}

ShmConnection::Done ShmConnection::execute_send(const Operation& operation) {
  if (operation.local.size() > link_.peer_receive_bytes) return Done::kRefused;
  switch (out_.place(operation.local)) {
    case RingWriter::Outcome::kPlaced:
      return Done::kYes;
    case RingWriter::Outcome::kFull:
      return Done::kNotYet;
    case RingWriter::Outcome::kGarbage:
      break;
  }
  log_warn(EventName("connection_garbage"),
           "{} wrote garbage into the memory of its connection: the connection is closed",
           link_.peer);
  return Done::kFailed;
}

// Returns where the operation's remote memory is mapped, or nullptr if it is not. The announcement
// of a new region may be waiting in the socket, so this reads the socket and tries again.
std::byte* ShmConnection::find_remote(const Operation& operation, std::uint64_t bytes) {
  const bool atomic = operation.kind != Operation::Kind::kRead;
  for (int attempt = 0; attempt < 2; ++attempt) {
    const RegionTable::Entry* entry = link_.regions.find(operation.remote_key);
    if (entry != nullptr) {
      return atomic && !entry->atomics ? nullptr : entry->at(operation.remote_address, bytes);
    }
    if (attempt == 0) read_news();
  }
  return nullptr;
}

// Reads the news first, so that memory that the client has withdrawn is not READ any more, as with
// an adapter. The two system calls cost little compared with the copy of a value that is worth a
// READ.
ShmConnection::Done ShmConnection::execute_peer_read(const Operation& operation) {
  if (operation.kind != Operation::Kind::kRead) return Done::kRefused;
  read_peer_news(kPeerNewsBeforeRead, kPeerNewsBeforeRead);
  if (peer_ended_) return Done::kFailed;
  const bool done =
      link_.peer_regions.read(operation.remote_key, operation.remote_address, operation.local);
  return done ? Done::kYes : Done::kRefused;
}

ShmConnection::Done ShmConnection::execute_remote(const Operation& operation) {
  if (link_.passive) return execute_peer_read(operation);
  const bool atomic = operation.kind != Operation::Kind::kRead;
  const MutableBytes local = operation.local;
  if (atomic && local.size() != sizeof(std::uint64_t)) return Done::kFailed;
  if (atomic && operation.remote_address % sizeof(std::uint64_t) != 0) return Done::kRefused;
  std::byte* remote = find_remote(operation, local.size());
  if (remote == nullptr) return peer_ended_ ? Done::kFailed : Done::kRefused;
  if (!atomic) {
    copy_out(local, remote);
  } else {
    // seq_cst: as strong as an adapter's atomics, which have a single order for all observers.
    const std::atomic_ref<std::uint64_t> word(*reinterpret_cast<std::uint64_t*>(remote));
    std::uint64_t old = operation.compare_or_add;
    if (operation.kind == Operation::Kind::kFetchAdd) {
      old = word.fetch_add(operation.compare_or_add, std::memory_order_seq_cst);
    } else {
      word.compare_exchange_strong(old, operation.swap, std::memory_order_seq_cst);
    }
    store_le(local.data(), old);
  }
  // Last, because it proves the copy valid (HOSTPAGE-1).
  return link_.host.alive_after_copy() && !in_.closed() ? Done::kYes : Done::kFailed;
}

void ShmConnection::hold(const Operation& operation) {
  const std::uint64_t place = pending_end_++ & (pending_.size() - 1);
  pending_[place] = operation;
  if (operation.kind != Operation::Kind::kSend || !operation.inline_data) return;
  RKV_CHECK(operation.local.size() <= limits_.inline_bytes,
            "the inline message is longer than inline_bytes");
  // Allocated on first use: only a sender that is faster than its peer needs it.
  if (inline_data_.empty()) inline_data_.resize(pending_.size() * limits_.inline_bytes);
  std::byte* copy = inline_data_.data() + place * limits_.inline_bytes;
  std::ranges::copy(operation.local, copy);
  pending_[place].local = {copy, operation.local.size()};
}

// ---- on the queue's poll ----

bool ShmConnection::can_advance() {
  if (reported_) return false;
  if (in_.has_message() && queue_->has_free_buffer()) return true;
  if (ending_ != Ending::kNone) return !in_.has_message();
  if (peer_ended_ || in_.closed()) return true;
  return pending_first_ != pending_end_ &&
         out_.has_room(pending_[pending_first_ & (pending_.size() - 1)].local.size());
}

std::size_t ShmConnection::advance(std::span<Completion> out) {
  if (reported_) return 0;
  if (ending_ == Ending::kNone && (peer_ended_ || in_.closed())) end(Ending::kPeerLeft);
  if (pending_first_ != pending_end_) advance_pending();
  const std::size_t count = receive(out);
  if (ending_ == Ending::kPeerLeft && !reported_ && !in_.has_message()) report_end();
  return count;
}

void ShmConnection::advance_pending() {
  while (pending_first_ != pending_end_) {
    const Operation operation = pending_[pending_first_ & (pending_.size() - 1)];
    const Done done = execute(operation);
    if (done == Done::kNotYet) break;
    ++pending_first_;
    if (done == Done::kYes) {
      if (!operation.signaled) queue_->room_came_back();
      continue;
    }
    if (out_.publish()) wake_peer();
    fail(operation, done, {});
    return;
  }
  if (out_.publish()) wake_peer();
}

std::size_t ShmConnection::receive(std::span<Completion> out) {
  std::size_t count = 0;
  while (!reported_ && count < out.size() && queue_->has_free_buffer()) {
    const MutableBytes buffer = queue_->next_buffer();
    std::size_t length = 0;
    const RingReader::Outcome outcome = in_.take(buffer.data(), &length);
    if (outcome == RingReader::Outcome::kEmpty) break;
    if (outcome == RingReader::Outcome::kGarbage) {
      log_warn(EventName("connection_garbage"),
               "{} wrote garbage into the memory of its connection: the connection is closed",
               link_.peer);
      end(Ending::kDead);
      break;
    }
    out[count++] = {.kind = Kind::kReceive,
                    .connection = this,
                    .message = buffer.first(length),
                    .receive_buffer = queue_->take_buffer()};
  }
  if (count != 0 && in_.producer_waits()) wake_peer();
  return count;
}

// ---- the socket ----

void ShmConnection::wake_peer() {
  const std::uint64_t sleep = load(*peer_sleeps_, std::memory_order_seq_cst);  // SHMQ-5
  if (sleep % 2 == 0 || sleep == woken_sleep_) return;
  woken_sleep_ = sleep;
  send_wake(socket());
}

void ShmConnection::tell_sleeping(std::uint64_t value) const {
  // Accepted peers read the queue's own page instead.
  if (!link_.passive) store(header().client_sleeps, value, std::memory_order_seq_cst);  // SHMQ-5
}

void ShmConnection::read_socket() {
  if (link_.passive) {
    read_peer_news(kPeerNewsAtOnce, kPeerRegionPacketsAtOnce);
  } else {
    read_news();
  }
  if (peer_ended_) end(Ending::kPeerLeft);
}

// Packets from a client: wake-up bytes, and announcements of memory that we may READ.
void ShmConnection::read_peer_news(int packets_max, int region_packets_max) {
  for (int i = 0; i < packets_max && region_packets_max > 0 && !peer_ended_; ++i) {
    bool has_regions = false;
    if (!take_peer_packet(&has_regions)) return;
    if (has_regions) --region_packets_max;
  }
}

// Handles one packet. It is peeked before it is taken: a packet with unexpected descriptors stays
// in the socket (REAP-1). Returns false if there is none.
bool ShmConnection::take_peer_packet(bool* has_regions) {
  std::array<std::byte, kMaxPacketBytes> buffer;
  const Peeked peeked = peek_packet(socket(), buffer);
  const Packet& packet = peeked.packet;
  if (packet.result == Packet::Result::kNothing) return false;
  if (peeked.has_descriptors) {
    *has_regions = true;
    const SteadyClock clock;
    say_goodbye(link_.peer_regions.receive(socket(), clock.now()));
    return true;
  }
  if (packet.result == Packet::Result::kEnd || packet.length > buffer.size()) {
    peer_ended_ = true;
    return true;
  }
  drop_packet(socket());
  if (packet.length == 1) return true;
  std::vector<Fd> none;
  say_goodbye(link_.peer_regions.take_in(Bytes(buffer).first(packet.length), none, {}));
  return true;
}

// Does nothing if `why` is nullptr.
void ShmConnection::say_goodbye(const char* why) {
  if (why == nullptr) return;
  log_warn(EventName("peer_refused"), "{} is disconnected: {}", link_.peer, why);
  Goodbye goodbye;
  goodbye.length =
      static_cast<std::uint32_t>(std::min(std::string_view(why).size(), goodbye.reason.size()));
  std::copy_n(why, goodbye.length, goodbye.reason.begin());
  send_packet(socket(), packet_of(goodbye));
  peer_ended_ = true;
}

void ShmConnection::read_news() {
  // Load the number before reading the socket: a later removal increases it again (HOSTPAGE-5).
  regions_gone_ = link_.host.regions_gone();
  std::array<std::byte, kMaxPacketBytes> buffer;
  for (int i = 0; i < kNewsAtOnce && !peer_ended_; ++i) {
    std::vector<Fd> descriptors;
    const Packet packet = receive_packet(socket(), buffer, &descriptors);
    if (packet.result == Packet::Result::kNothing) return;
    if (packet.result == Packet::Result::kPacket && packet.length == 1) continue;  // a wake-up byte
    if (packet.lost_descriptors) {
      log_warn(EventName("no_descriptors"),
               "the connection to {} is closed: there are no descriptors left for its memory: {}",
               link_.peer, kRaiseLimit);
      peer_ended_ = true;
      return;
    }
    peer_ended_ = packet.result == Packet::Result::kEnd || packet.length > buffer.size() ||
                  is_goodbye(Bytes(buffer).first(packet.length), link_.peer) ||
                  !link_.regions.take_in(Bytes(buffer).first(packet.length), descriptors);
  }
}

}  // namespace rkv::rdma::shm
