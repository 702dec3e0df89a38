// The bodies of TransportOf, for the source files that define a state and instantiate it.
#pragma once

#include <utility>

#include "rkv/check.h"
#include "rkv/rdma/message/transport_of.h"

namespace rkv::rdma {

template <class State>
TransportOf<State>::TransportOf(std::unique_ptr<State> state) : state_(std::move(state)) {}
template <class State>
TransportOf<State>::TransportOf(TransportOf&&) noexcept = default;
template <class State>
TransportOf<State>& TransportOf<State>::operator=(TransportOf&&) noexcept = default;
template <class State>
TransportOf<State>::~TransportOf() = default;

template <class State>
State& TransportOf<State>::state() const {
  RKV_CHECK(state_ != nullptr, "the message transport was moved from");
  return *state_;
}

template <class State>
Result<std::size_t> TransportOf<State>::send_copy(Bytes message) {
  return state().send({&message, 1});
}
template <class State>
Result<std::size_t> TransportOf<State>::send_gather(std::span<const Bytes> pieces) {
  return state().send(pieces);
}
template <class State>
Result<std::size_t> TransportOf<State>::poll_sends() {
  return state().poll_sends();
}
template <class State>
Result<std::size_t> TransportOf<State>::poll_receives(std::span<Received> out) {
  return state().poll_receives(out);
}
template <class State>
Bytes TransportOf<State>::view(std::uint32_t index) const {
  return state().view(index);
}
template <class State>
Status TransportOf<State>::release(std::uint32_t index) {
  return state().release(index);
}
template <class State>
bool TransportOf<State>::poll_disconnect() {
  return state().poll_disconnect();
}
template <class State>
Status TransportOf<State>::disconnect() {
  return state().disconnect();
}
template <class State>
SocketAddress TransportOf<State>::local_address() const {
  return state().local_address();
}
template <class State>
SocketAddress TransportOf<State>::peer_address() const {
  return state().peer_address();
}
template <class State>
std::size_t TransportOf<State>::max_message() const {
  return state().max_message();
}
template <class State>
std::size_t TransportOf<State>::sends_in_flight() const {
  return state().in_flight();
}
template <class State>
std::size_t TransportOf<State>::receive_window() const {
  return state().window();
}
template <class State>
int TransportOf<State>::fd() const {
  return state().fd();
}
template <class State>
Result<bool> TransportOf<State>::arm(Interest interest) {
  return state().arm(interest);
}

}  // namespace rkv::rdma
