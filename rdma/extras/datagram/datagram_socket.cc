#include "rkv/rdma/datagram_socket.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "rkv/rdma/error.h"
#include "rkv/rdma/extended_completion.h"
#include "rkv/rdma/queue_pair.h"
#include "rkv/rdma/route.h"

namespace rkv::rdma {
namespace {

constexpr std::uint32_t kMostReceives = 16384;
constexpr std::uint32_t kMostPeers = 65536;
constexpr WcField kSourceFields = WcField::kByteLength | WcField::kQueuePair |
                                  WcField::kSourceQueuePair | WcField::kSlid |
                                  WcField::kServiceLevel | WcField::kPathBits;
using ReceiveQueue = ExtendedCompletionQueue<kSourceFields>;

Status check(const DatagramSocketOptions& options) {
  if (options.receives == 0 || options.receives > kMostReceives) {
    return fail(Code::kInvalidArgument, "DatagramSocketOptions::receives is from 1 to 16384");
  }
  if (options.peers == 0 || options.peers > kMostPeers) {
    return fail(Code::kInvalidArgument, "DatagramSocketOptions::peers is from 1 to 65536");
  }
  if (options.qkey >> 31 != 0) {
    return fail(Code::kInvalidArgument,
                "DatagramSocketOptions::qkey is below 2^31: the upper half is for the system");
  }
  return {};
}

}  // namespace

class DatagramSocket::State {
 public:
  struct Parts {
    ProtectionDomain pd;
    CompletionChannel sent_events;
    CompletionQueue sent;
    CompletionChannel received_events;
    ReceiveQueue received;
    MemoryRegion memory;
    Endpoint self;
    GidEntry gid;
    std::vector<GidEntry> gids;
    std::uint8_t port;
    BasicQueuePair<Ud> qp;
  };
  State(Parts parts, const DatagramSocketOptions& options)
      : parts_(std::move(parts)), receives_(options.receives), most_handles_(options.peers) {
    handles_.reserve(most_handles_);
  }

  static std::size_t stride(std::size_t mtu) { return Grh::kBytes + mtu; }
  Status post_all() {
    for (std::uint32_t i = 0; i < receives_; ++i)
      RKV_RETURN_IF_ERROR(post(i));
    return {};
  }
  const Endpoint& self() const { return parts_.self; }
  std::size_t max_bytes() const { return parts_.qp.max_datagram_bytes(); }

  Result<AddressAttributes> route_to(const Endpoint& peer) const {
    RKV_ASSIGN_OR_RETURN(const Route route,
                         choose_route(parts_.port, parts_.gid, parts_.self, peer));
    return route.address;
  }
  Status send(const AddressAttributes& to, std::uint32_t qp_num, Bytes message,
              const Deadline& deadline);
  Result<IncomingDatagram> receive(const Deadline& deadline);

 private:
  // A handle, and its address to find it again.
  struct Known {
    AddressAttributes address;
    AddressHandle handle;
  };
  RegisteredSpan buffer(std::uint32_t index) const {
    const std::size_t each = stride(max_bytes());
    return parts_.memory.local(index * each, each);
  }
  RegisteredSpan outgoing() const { return parts_.memory.last(max_bytes()); }
  Status post(std::uint32_t index) { return parts_.qp.post_receive(index, buffer(index)); }
  Result<const AddressHandle*> handle_of(const AddressAttributes& address);
  Status wait_sent(const Deadline& deadline);
  Result<std::optional<IncomingDatagram>> take(const Deadline& deadline);

  // Declared before the queue pair, which may still name a handle when it ends.
  std::vector<Known> handles_;
  Parts parts_;
  std::uint32_t receives_;
  std::size_t most_handles_;
  std::size_t oldest_ = 0;  // index in handles_ of the next one to be replaced
  bool sending_ = false;    // the outgoing bytes and a handle are in use
  std::optional<std::uint32_t> lent_ = std::nullopt;  // the buffer that the caller reads
};

Result<const AddressHandle*> DatagramSocket::State::handle_of(const AddressAttributes& address) {
  const auto found =
      std::ranges::find_if(handles_, [&](const Known& one) { return one.address == address; });
  if (found != handles_.end()) return &found->handle;
  RKV_ASSIGN_OR_RETURN(AddressHandle handle, AddressHandle::create(parts_.pd, address));
  if (handles_.size() < most_handles_) {
    return &handles_.emplace_back(address, std::move(handle)).handle;
  }
  Known& replaced = handles_[std::exchange(oldest_, (oldest_ + 1) % most_handles_)];
  replaced = {address, std::move(handle)};
  return &replaced.handle;
}

Status DatagramSocket::State::wait_sent(const Deadline& deadline) {
  if (!sending_) return {};
  WorkCompletion done;
  RKV_ASSIGN_OR_RETURN(const std::size_t count, parts_.sent.wait({&done, 1}, deadline));
  if (count == 0) return fail(Code::kTimeout, "the datagram has not left yet");
  sending_ = false;
  if (!done.ok()) return std::unexpected(wc_error("a datagram", done.status));
  return {};
}

Status DatagramSocket::State::send(const AddressAttributes& to, std::uint32_t qp_num, Bytes message,
                                   const Deadline& deadline) {
  if (message.size() > max_bytes()) {
    return fail(Code::kTooLarge, "a datagram is longer than max_bytes()");
  }
  // A datagram whose completion came too late for its caller still occupies the buffer.
  RKV_RETURN_IF_ERROR(wait_sent(deadline));
  RKV_ASSIGN_OR_RETURN(const AddressHandle* const handle, handle_of(to));
  const RegisteredSpan copy = outgoing().first(message.size());
  std::ranges::copy(message, copy.bytes().begin());
  RKV_RETURN_IF_ERROR(parts_.qp.op(0).signaled().to(*handle, qp_num, parts_.self.qkey).send(copy));
  sending_ = true;
  return wait_sent(deadline);
}

// Returns a datagram; nullopt if it was malformed.
Result<std::optional<IncomingDatagram>> DatagramSocket::State::take(const Deadline& deadline) {
  ibv_wc_status status = IBV_WC_SUCCESS;
  DatagramSource source;
  std::size_t bytes = 0;
  const auto read = [&](const auto& c) {
    lent_ = static_cast<std::uint32_t>(c.wr_id());
    status = c.status();
    if (!c.ok()) return;
    source = DatagramSource::of(c);
    bytes = c.byte_length();
  };
  RKV_ASSIGN_OR_RETURN(const std::size_t found, parts_.received.wait_each(read, deadline, 1));
  if (found == 0) return fail(Code::kTimeout, "no datagram came");
  if (status != IBV_WC_SUCCESS) return std::unexpected(wc_error("a receive", status));
  const Result<ReceivedDatagram> got = ReceivedDatagram::from(buffer(*lent_), bytes);
  if (!got) return std::nullopt;
  Result<AddressAttributes> sender = reply_address(parts_.port, source, *got, parts_.gids);
  if (!sender && sender.error().code == Code::kNotFound) {
    // The interface may have got another address.
    RKV_ASSIGN_OR_RETURN(parts_.gids, parts_.pd.device().gid_table());
    sender = reply_address(parts_.port, source, *got, parts_.gids);
  }
  if (!sender) return std::nullopt;
  return IncomingDatagram{.payload = got->payload(), .sender = *sender, .qp_num = source.qp_num};
}

Result<IncomingDatagram> DatagramSocket::State::receive(const Deadline& deadline) {
  for (;;) {
    if (lent_) RKV_RETURN_IF_ERROR(post(*std::exchange(lent_, std::nullopt)));
    RKV_ASSIGN_OR_RETURN(const std::optional<IncomingDatagram> got, take(deadline));
    if (got) return *got;
    if (deadline.passed()) return fail(Code::kTimeout, "no datagram came");
  }
}

DatagramSocket::DatagramSocket(std::unique_ptr<State> state) : state_(std::move(state)) {}
DatagramSocket::DatagramSocket(DatagramSocket&&) noexcept = default;
DatagramSocket& DatagramSocket::operator=(DatagramSocket&&) noexcept = default;
DatagramSocket::~DatagramSocket() = default;

Result<DatagramSocket> DatagramSocket::open(const Device& device,
                                            const DatagramSocketOptions& options) {
  RKV_RETURN_IF_ERROR(check(options));
  std::uint8_t port = options.port;
  if (port == 0) {
    RKV_ASSIGN_OR_RETURN(port, device.first_active_port());
  }
  RKV_ASSIGN_OR_RETURN(const PortAttributes link, device.port(port));
  RKV_ASSIGN_OR_RETURN(const GidEntry gid, device.routable_gid(port));
  RKV_ASSIGN_OR_RETURN(std::vector<GidEntry> gids, device.gid_table());
  RKV_ASSIGN_OR_RETURN(ProtectionDomain pd, ProtectionDomain::allocate(device));
  RKV_ASSIGN_OR_RETURN(CompletionChannel sent_events, CompletionChannel::create(device));
  RKV_ASSIGN_OR_RETURN(CompletionQueue sent,
                       CompletionQueue::create(device, {.entries = 1, .channel = &sent_events}));
  RKV_ASSIGN_OR_RETURN(CompletionChannel received_events, CompletionChannel::create(device));
  RKV_ASSIGN_OR_RETURN(
      ReceiveQueue received,
      ReceiveQueue::create(device, {.entries = options.receives, .channel = &received_events}));
  const std::size_t mtu = link.active_mtu_bytes;
  RKV_ASSIGN_OR_RETURN(MemoryRegion memory,
                       MemoryRegion::allocate(pd, options.receives * State::stride(mtu) + mtu,
                                              AccessFlags::kLocalWrite));
  RKV_ASSIGN_OR_RETURN(auto prepared, BasicQueuePair<Ud>::create(
                                          pd, sent, received,
                                          {.send_length = 1, .receive_length = options.receives}));
  RKV_ASSIGN_OR_RETURN(Endpoint self, prepared.endpoint(port, gid));
  self.qkey = options.qkey;
  RKV_ASSIGN_OR_RETURN(auto qp, std::move(prepared).activate(self.qkey));
  auto state = std::make_unique<State>(
      State::Parts{std::move(pd), std::move(sent_events), std::move(sent),
                   std::move(received_events), std::move(received), std::move(memory), self, gid,
                   std::move(gids), port, std::move(qp)},
      options);
  RKV_RETURN_IF_ERROR(state->post_all());
  return DatagramSocket(std::move(state));
}

DatagramSocket::State& DatagramSocket::state() const {
  RKV_CHECK(state_ != nullptr, "the socket was moved from");
  return *state_;
}

const Endpoint& DatagramSocket::endpoint() const {
  return state().self();
}
std::size_t DatagramSocket::max_bytes() const {
  return state().max_bytes();
}

Status DatagramSocket::send(const Endpoint& to, Bytes message, const Deadline& deadline) {
  RKV_ASSIGN_OR_RETURN(const AddressAttributes address, state().route_to(to));
  return state().send(address, to.qp_num, message, deadline);
}

Status DatagramSocket::reply(const IncomingDatagram& to, Bytes message, const Deadline& deadline) {
  return state().send(to.sender, to.qp_num, message, deadline);
}

Result<IncomingDatagram> DatagramSocket::receive(const Deadline& deadline) {
  return state().receive(deadline);
}

}  // namespace rkv::rdma
