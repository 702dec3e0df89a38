#include "rdma/extras/message/link_queues.h"

#include <sys/epoll.h>

#include "rkv/rdma/error.h"

namespace rkv::rdma::detail {

Result<LinkQueues> LinkQueues::create(const Device& device, std::uint32_t sends,
                                      std::uint32_t receives) {
  RKV_ASSIGN_OR_RETURN(CompletionChannel channel, CompletionChannel::create(device));
  RKV_ASSIGN_OR_RETURN(CompletionQueue of_sends,
                       CompletionQueue::create(device, {.entries = sends, .channel = &channel}));
  RKV_ASSIGN_OR_RETURN(CompletionQueue of_receives,
                       CompletionQueue::create(device, {.entries = receives, .channel = &channel}));
  Descriptor poller(epoll_create1(EPOLL_CLOEXEC));
  RKV_RETURN_IF_ERROR(from_minus_one("epoll_create1", poller.get()));
  LinkQueues out(std::move(channel), std::move(of_sends), std::move(of_receives),
                 std::move(poller));
  RKV_RETURN_IF_ERROR(out.watch(out.channel_.fd()));
  return out;
}

Status LinkQueues::watch(int fd) {
  epoll_event event{};
  event.events = EPOLLIN;
  return from_minus_one("epoll_ctl", epoll_ctl(poller_.get(), EPOLL_CTL_ADD, fd, &event));
}

// Drains all old events before arming: an old event that stays would only cause a useless wake-up,
// but an event taken after arming would be the wake-up itself.
Status LinkQueues::arm() {
  RKV_RETURN_IF_ERROR(channel_.drain());
  RKV_RETURN_IF_ERROR(sends_.arm());
  return receives_.arm();
}

}  // namespace rkv::rdma::detail
