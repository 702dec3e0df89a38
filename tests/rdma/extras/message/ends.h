// Two connected ends of any message transport, and helpers that drive them on one thread.
#pragma once

#include <gtest/gtest.h>
#include <poll.h>

#include <array>
#include <cstdlib>
#include <functional>
#include <future>
#include <span>
#include <vector>

#include "common/random.h"
#include "rkv/rdma/message/transport.h"
#include "tests/rdma/support/loopback.h"

namespace rkv::rdma::testing {

inline constexpr int kLongPatienceMs = 20000;  // many round trips through an emulated machine

// Contents that identify their message and the byte within it.
inline std::vector<std::byte> pattern(std::uint64_t number, std::size_t length) {
  std::vector<std::byte> out(length);
  for (std::size_t i = 0; i < length; ++i)
    out[i] = static_cast<std::byte>(mix64(number * 0x10001 + i / 8) >> (8 * (i % 8)));
  return out;
}
inline bool is_pattern(Bytes bytes, std::uint64_t number) {
  return std::ranges::equal(bytes, pattern(number, bytes.size()));
}

// An address of an RDMA device, with port 0.
inline SocketAddress device_address() {
  const char* host = std::getenv("RKV_RDMA_ADDRESS");
  if (host == nullptr) {
    ADD_FAILURE() << "RKV_RDMA_ADDRESS must name an address of an RDMA device";
    throw std::runtime_error("no address");
  }
  return need(resolve({.host = host, .port = 0}, soon())).front();
}

template <class T>
struct Ends {
  T client;
  T server;
};

// The two sides may have different builders.
template <class B>
Ends<typename B::Transport> connect_ends(const B& active, const B& passive,
                                         const SocketAddress& address) {
  auto listener = need(passive.listen(address));
  auto client = std::async(std::launch::async, [&active, to = listener.address()] {
    return active.connect(to, soon(kLongPatienceMs));
  });
  auto server = passive.accept(listener, soon(kLongPatienceMs));
  auto connected = client.get();
  return {need(std::move(connected)), need(std::move(server))};
}

// Sleeps until one of the two may have an event. Returns false on a time-out.
template <class A, class B>
bool sleep_on(A& a, Interest of_a, B& b, Interest of_b, const Deadline& deadline) {
  if (!need(a.arm(of_a))) return true;
  if (!need(b.arm(of_b))) return true;
  std::array<pollfd, 2> fds = {{{.fd = a.fd(), .events = POLLIN, .revents = 0},
                                {.fd = b.fd(), .events = POLLIN, .revents = 0}}};
  return ::poll(fds.data(), fds.size(), deadline.left_ms()) > 0;
}

inline constexpr Interest kAnything = Interest::kMessages | Interest::kRoom | Interest::kSent;

// Calls `step` until it returns true; sleeps when a call changed nothing. `step` must drive both
// ends as far as possible: no other thread does.
template <class A, class B>
void until(A& a, B& b, const std::function<bool()>& step, Interest of_a = kAnything,
           Interest of_b = kAnything) {
  const Deadline deadline = soon(kLongPatienceMs);
  while (!step()) {
    if (deadline.passed() || !sleep_on(a, of_a, b, of_b, deadline)) {
      ADD_FAILURE() << "it took too long";
      throw std::runtime_error("it took too long");
    }
  }
}

template <class T>
std::vector<Received> receive(T& transport, std::size_t most = 64) {
  std::vector<Received> out(most);
  out.resize(need(transport.poll_receives(out)));
  return out;
}

// Waits for `count` messages and holds them.
template <class T>
std::vector<Received> receive_exactly(T& to, T& from, std::size_t count) {
  std::vector<Received> all;
  until(
      to, from,
      [&] {
        const auto some = receive(to, count - all.size());
        all.insert(all.end(), some.begin(), some.end());
        return all.size() == count;
      },
      Interest::kMessages, Interest::kNone);
  return all;
}

// The same without driving the other end.
template <class T>
std::vector<Received> receive_alone(T& to, std::size_t count) {
  std::vector<Received> all;
  const Deadline deadline = soon(kLongPatienceMs);
  while (all.size() != count) {
    const auto some = receive(to, count - all.size());
    all.insert(all.end(), some.begin(), some.end());
    if (some.empty() && need(to.arm(Interest::kMessages)) &&
        !need(wait_readable(to.fd(), deadline))) {
      ADD_FAILURE() << "only " << all.size() << " of " << count << " messages came";
      break;
    }
  }
  return all;
}

// Sends messages `first`, `first` + 1, ... until the transport has no more space, without reaping
// completions; returns their number.
template <class T>
std::size_t fill(T& transport, std::uint64_t first, std::size_t length, std::size_t most = 100000) {
  std::size_t count = 0;
  while (count < most) {
    const std::size_t taken = need(transport.send_copy(pattern(first + count, length)));
    if (taken == 0) break;
    EXPECT_EQ(taken, length);
    ++count;
  }
  return count;
}

// Sends one message and waits until the transport has taken it.
template <class T>
void send(T& from, T& to, Bytes message) {
  until(
      from, to,
      [&] {
        need(from.poll_sends());
        return need(from.send_copy(message)) == message.size();
      },
      Interest::kRoom | Interest::kSent, Interest::kNone);
}

// Waits until no send is in flight.
template <class T>
void flush(T& from, T& to) {
  until(
      from, to,
      [&] {
        need(from.poll_sends());
        return from.sends_in_flight() == 0;
      },
      Interest::kSent, Interest::kNone);
}

// Checks the contents and releases the messages.
template <class T>
void expect_and_release(T& transport, std::span<const Received> messages, std::uint64_t first) {
  for (const Received& one : messages) {
    EXPECT_EQ(transport.view(one.index).size(), one.length);
    EXPECT_TRUE(is_pattern(transport.view(one.index), first)) << "message " << first;
    need(transport.release(one.index));
    ++first;
  }
}

}  // namespace rkv::rdma::testing
