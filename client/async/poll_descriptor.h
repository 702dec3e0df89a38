// The descriptor that an event loop waits for. It is readable when the client's queue has an event,
// after wake(), and at a set time.
//
// Thread safety: none, except that any thread may call wake().
#pragma once

#include <atomic>

#include "common/fd.h"
#include "rdma/transport/transport.h"
#include "rkv/clock.h"
#include "rkv/result.h"

namespace rkv::client {

class PollDescriptor {
 public:
  static Result<PollDescriptor> create();

  int fd() const { return epoll_.get(); }
  void wake() const;
  // Begins a sleep on this queue, which may be null, until `wait` has passed. Returns false if the
  // queue has something to do.
  bool begin_sleep(rdma::Queue* queue, Nanos wait);
  // REQUIRES: the queue of begin_sleep() still exists.
  void end_sleep();
  // Makes the descriptor unreadable after a wake-up.
  void consume() const;
  // Call it in a forked child. From then on the number is that of the child's own descriptor, which
  // only wake() makes readable.
  void part_from_parent() const;

 private:
  PollDescriptor() = default;
  void watch(int queue_fd);
  void forget_queue();
  void set_timer(Nanos wait);

  Fd epoll_;
  Fd wake_;
  Fd timer_;
  int watched_ = -1;               // the queue's descriptor in epoll_
  rdma::Queue* sleeps_ = nullptr;  // its begin_sleep() has returned a descriptor
};

}  // namespace rkv::client
