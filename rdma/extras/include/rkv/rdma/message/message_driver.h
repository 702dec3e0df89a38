// Many message transports on one completion queue: one thread polls one queue and sleeps on one
// descriptor, however many peers there are.
//
//   RKV_ASSIGN_OR_RETURN(MessageDriver driver, MessageDriver::create({.entries = 32768}));
//   SendReceiveBuilder builder{.options = SendReceiveOptions::datagram(), .driver = driver};
//   RKV_ASSIGN_OR_RETURN(SendReceiveTransport one, builder.accept(listener, deadline));
//   by_number.emplace(one.queue_pair().number(), std::move(one));
//   for (;;) {
//     std::array<std::uint32_t, 64> ready;
//     RKV_ASSIGN_OR_RETURN(std::size_t count, driver.poll(ready));
//     for (std::uint32_t number : std::span(ready).first(count)) serve(by_number.at(number));
//     if (count != 0) continue;
//     RKV_ASSIGN_OR_RETURN(bool may_sleep, driver.arm());
//     if (may_sleep) RKV_RETURN_IF_ERROR(wait_readable(driver.fd(), deadline));
//   }
//
// The transports keep all of MSG-1 to MSG-7 (transport.h) and can also be used as if each were
// alone, by a Stream or an executor: the fd() of each is that of the driver.
//
// Invariants:
//   DRIVER-1  A transport is admitted only if the queue has free entries for all requests that it
//       may have outstanding. So the queue cannot overrun. The entries are free again when the
//       queue pair is destroyed and all of its completions have been polled.
//   DRIVER-2  A completion goes to the transport whose request it ends: by queue pair number and
//       generation. Completions of an earlier queue pair with the same number are dropped.
//   DRIVER-3  Each transport has room for all of its completions. Polling for one transport keeps
//       the completions of the others, whatever they do, and the end of a transport drops its own
//       completions only.
//   DRIVER-4  A completion or event that is taken from the system by a call for another transport
//       wakes a caller that has armed the transport: fd() becomes readable.
//
// A shared queue has no memory windows: a ring is then opened by a registration in a protection
// domain of its own (RINGTRANS-5). LeasePolicy::kRequireWindows is kUnsupported.
//
// Thread safety: one thread at a time for a driver and all of its transports, connecting included.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "rkv/export.h"
#include "rkv/result.h"

namespace rkv::rdma {

class MessageDriver;

namespace detail {
class SharedQueue;
SharedQueue* shared_of(const std::optional<MessageDriver>& driver);  // nullptr without a driver
}  // namespace detail

struct MessageDriverOptions {
  // Of the completion queue, for the sends and receives of all transports. A transport needs
  // send_buffers + receive_buffers, or for rings 2 * slots + 18.
  std::uint32_t entries = 8192;
  std::uint32_t transports = 1024;  // at a time
};

// A handle: copies refer to the same driver. The transports keep it alive.
class RKV_EXPORT MessageDriver {
 public:
  // The queue is created with the first transport, on the device of its connection. Transports of
  // another device are refused with kInvalidArgument.
  static Result<MessageDriver> create(const MessageDriverOptions& options = {});

  // Polls the queue. Returns the queue pair numbers of transports that may have something to do:
  // messages, completed sends, room, or an end of the connection. Each is returned once and then
  // again after its next completion or event; further ones are kept for the next call. Does not
  // block.
  Result<std::size_t> poll(std::span<std::uint32_t> ready);
  // True if poll() would return nothing; fd() then becomes readable at the next event. Makes system
  // calls.
  Result<bool> arm();
  int fd() const;

  struct Counters {
    std::uint32_t transports = 0;
    std::uint32_t entries_reserved = 0;
    std::uint64_t polled = 0;  // completions
    std::uint64_t strays = 0;  // of these: dropped, since their transport had ended
  };
  Counters counters() const;

 private:
  friend detail::SharedQueue* detail::shared_of(const std::optional<MessageDriver>& driver);
  explicit MessageDriver(std::shared_ptr<detail::SharedQueue> shared)
      : shared_(std::move(shared)) {}
  std::shared_ptr<detail::SharedQueue> shared_;
};

}  // namespace rkv::rdma
