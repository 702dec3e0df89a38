// The descriptor that an event loop waits for: readable when the client's queue has an event, when
// somebody wakes it, or at a time.
//
// Thread safety: none, but wake() any thread.
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
  // Begins a sleep on this queue, which may be null, until `wait` has passed. False: the queue has
  // something to do.
  bool begin_sleep(rdma::Queue* queue, Nanos wait);
  // REQUIRES that the queue of begin_sleep() lives.
  void end_sleep();

 private:
  PollDescriptor() = default;
  void watch(int queue_fd);
  void forget_queue();
  void set_timer(Nanos wait);

  Fd epoll_;
  Fd wake_;
  Fd timer_;
  int watched_ = -1;               // the queue's descriptor in epoll_
  rdma::Queue* sleeps_ = nullptr;  // begin_sleep() of it has returned a descriptor
};

}  // namespace rkv::client
