// One type for any message transport, for programs that choose a transport at run time. Each call
// is a virtual call. It copies no additional bytes.
//
//   AnyMessageTransport transport = use_rings ? AnyMessageTransport(std::move(ring))
//                                             : AnyMessageTransport(std::move(plain));
//   Stream<AnyMessageTransport> stream(std::move(transport));
//
// A moved-from transport may only be assigned to or destroyed; any other call aborts with a
// message.
//
// Thread safety and buffers: those of the transport inside.
#pragma once

#include <concepts>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "rkv/check.h"
#include "rkv/rdma/message/transport.h"

namespace rkv::rdma {

class AnyMessageTransport {
 public:
  template <class T>
    requires(!std::same_as<T, AnyMessageTransport> && MessageTransport<T>)
  explicit AnyMessageTransport(T inner) : held_(std::make_unique<Held<T>>(std::move(inner))) {}

  Result<std::size_t> send_copy(Bytes message) { return held().send_copy(message); }
  Result<std::size_t> send_gather(std::span<const Bytes> pieces) {
    return held().send_gather(pieces);
  }
  Result<std::size_t> poll_sends() { return held().poll_sends(); }
  Result<std::size_t> poll_receives(std::span<Received> out) { return held().poll_receives(out); }
  Bytes view(std::uint32_t index) const { return held().view(index); }
  Status release(std::uint32_t index) { return held().release(index); }
  bool poll_disconnect() { return held().poll_disconnect(); }
  Status disconnect() { return held().disconnect(); }
  SocketAddress local_address() const { return held().local_address(); }
  SocketAddress peer_address() const { return held().peer_address(); }
  std::size_t max_message() const { return held().max_message(); }
  std::size_t sends_in_flight() const { return held().sends_in_flight(); }
  std::size_t receive_window() const { return held().receive_window(); }
  int fd() const { return held().fd(); }
  Result<bool> arm(Interest interest) { return held().arm(interest); }

 private:
  struct Interface {
    virtual ~Interface() = default;
    virtual Result<std::size_t> send_copy(Bytes message) = 0;
    virtual Result<std::size_t> send_gather(std::span<const Bytes> pieces) = 0;
    virtual Result<std::size_t> poll_sends() = 0;
    virtual Result<std::size_t> poll_receives(std::span<Received> out) = 0;
    virtual Bytes view(std::uint32_t index) const = 0;
    virtual Status release(std::uint32_t index) = 0;
    virtual bool poll_disconnect() = 0;
    virtual Status disconnect() = 0;
    virtual SocketAddress local_address() const = 0;
    virtual SocketAddress peer_address() const = 0;
    virtual std::size_t max_message() const = 0;
    virtual std::size_t sends_in_flight() const = 0;
    virtual std::size_t receive_window() const = 0;
    virtual int fd() const = 0;
    virtual Result<bool> arm(Interest interest) = 0;
  };

  template <class T>
  struct Held final : Interface {
    T inner;
    explicit Held(T from) : inner(std::move(from)) {}
    Result<std::size_t> send_copy(Bytes message) override { return inner.send_copy(message); }
    Result<std::size_t> send_gather(std::span<const Bytes> pieces) override {
      return inner.send_gather(pieces);
    }
    Result<std::size_t> poll_sends() override { return inner.poll_sends(); }
    Result<std::size_t> poll_receives(std::span<Received> out) override {
      return inner.poll_receives(out);
    }
    Bytes view(std::uint32_t index) const override { return inner.view(index); }
    Status release(std::uint32_t index) override { return inner.release(index); }
    bool poll_disconnect() override { return inner.poll_disconnect(); }
    Status disconnect() override { return inner.disconnect(); }
    SocketAddress local_address() const override { return inner.local_address(); }
    SocketAddress peer_address() const override { return inner.peer_address(); }
    std::size_t max_message() const override { return inner.max_message(); }
    std::size_t sends_in_flight() const override { return inner.sends_in_flight(); }
    std::size_t receive_window() const override { return inner.receive_window(); }
    int fd() const override { return inner.fd(); }
    Result<bool> arm(Interest interest) override { return inner.arm(interest); }
  };

  Interface& held() const {
    RKV_CHECK(held_ != nullptr, "the message transport was moved from");
    return *held_;
  }
  std::unique_ptr<Interface> held_;
};
static_assert(MessageTransport<AnyMessageTransport>);

}  // namespace rkv::rdma
