// Many connections by address whose receives come from one shared queue, and whose completions go
// to one completion queue.
#include <algorithm>
#include <future>
#include <map>
#include <memory>
#include <set>
#include <thread>
#include <vector>

#include "common/bytes.h"
#include "common/random.h"
#include "rkv/rdma/srq.h"
#include "tests/rdma/core/connect/device_address.h"

namespace rkv::rdma {
namespace {

using namespace rkv::rdma::testing;  // NOLINT(google-build-using-namespace)

constexpr std::uint32_t kManyLinks = 130;
constexpr std::uint32_t kMostAhead = 4;  // messages of one link under way
constexpr std::size_t kSlotBytes = 256;
// Never less than what is under way: on iWARP a message without a receive ends the connection.
constexpr std::uint32_t kSharedReceives = 2 * kManyLinks;

// A message: its link and its number on it, then bytes that depend on both.
std::size_t length_of(std::uint64_t link, std::uint64_t number) {
  return 16 + (link * 7 + number * 13) % (kSlotBytes - 16);
}
std::byte byte_of(std::uint64_t link, std::uint64_t number, std::size_t at) {
  return static_cast<std::byte>(link * 31 + number * 17 + at);
}
void write_message(const RegisteredSpan& to, std::uint64_t link, std::uint64_t number) {
  store_le(to.bytes().data(), link);
  store_le(to.bytes().data() + 8, number);
  for (std::size_t i = 16; i < to.size(); ++i)
    to.bytes()[i] = byte_of(link, number, i);
}
bool is_message(Bytes bytes, std::uint64_t link, std::uint64_t number) {
  if (bytes.size() != length_of(link, number)) return false;
  if (load_le<std::uint64_t>(bytes.data()) != link) return false;
  if (load_le<std::uint64_t>(bytes.data() + 8) != number) return false;
  for (std::size_t i = 16; i < bytes.size(); ++i) {
    if (bytes[i] != byte_of(link, number, i)) return false;
  }
  return true;
}

// One side of all links.
struct Crowd {
  ProtectionDomain pd;
  CompletionQueue queue;
  MemoryRegion memory;
  std::vector<std::unique_ptr<CmConnection>> links;
  std::map<std::uint32_t, std::uint32_t> link_of;  // by the number of the queue pair
  std::vector<std::uint64_t> numbers;              // of the next message that comes, by link

  Crowd(const Device& device, std::size_t slots)
      : pd(need(ProtectionDomain::allocate(device))),
        queue(need(CompletionQueue::create(device, {.entries = 4 * kManyLinks * kMostAhead}))),
        memory(need(MemoryRegion::allocate(pd, slots * kSlotBytes, AccessFlags::kLocalWrite))),
        numbers(kManyLinks) {}

  RegisteredSpan slot(std::size_t index) { return memory.local(index * kSlotBytes, kSlotBytes); }
  void adopt(CmConnection link) {
    link_of[link.qp.number()] = static_cast<std::uint32_t>(links.size());
    links.push_back(std::make_unique<CmConnection>(std::move(link)));
  }
};

class ManyLinks : public ::testing::Test {
 protected:
  CmListener listener = need(CmListener::listen(device_address(0)));
  Crowd server{*listener.device(), kSharedReceives};
  // The first half of the slots is for messages, the second for answers.
  static constexpr std::size_t kClientSlots = std::size_t{kManyLinks} * kMostAhead;
  Crowd clients{*listener.device(), 2 * kClientSlots};
  SharedReceiveQueue receives =
      need(SharedReceiveQueue::create(server.pd, {.length = kSharedReceives}));
  Random random{7};
  std::vector<std::uint64_t> sent = std::vector<std::uint64_t>(kManyLinks);
  std::set<std::uint64_t> slots_used;  // by the messages of a round
  bool posts_again = true;             // receives

  void connect_all();
  // Each link sends `ahead` messages, in a random order, and gets as many answers.
  void talk(std::span<const std::uint32_t> who, std::uint32_t ahead);

 private:
  PreparedQueuePair<> client_queue_pair(Connector& connector, std::uint32_t link);
  void send(std::uint32_t link);
  void serve(const WorkCompletion& completion);
  void hear(const WorkCompletion& completion);
};

// With the receives of all answers.
PreparedQueuePair<> ManyLinks::client_queue_pair(Connector& connector, std::uint32_t link) {
  auto qp = need(QueuePair::create(clients.pd, clients.queue, clients.queue,
                                   {.send_length = kMostAhead, .receive_length = kMostAhead}));
  need(connector.prepare(qp, {}));
  for (std::uint32_t i = 0; i < kMostAhead; ++i) {
    const std::size_t slot = kClientSlots + std::size_t{link} * kMostAhead + i;
    need(qp.post_receive(slot, clients.slot(slot)));
  }
  return qp;
}

void ManyLinks::connect_all() {
  for (std::uint32_t i = 0; i < kSharedReceives; ++i)
    need(receives.post(i, server.slot(i)));
  auto connecting = std::async(std::launch::async, [&] {
    for (std::uint32_t link = 0; link < kManyLinks; ++link) {
      Connector connector = need(Connector::resolve(device_address(listener.port()), {}, soon()));
      PreparedQueuePair<> qp = client_queue_pair(connector, link);
      clients.adopt(need(std::move(connector).connect(std::move(qp), {}, {}, soon())));
    }
  });
  for (std::uint32_t link = 0; link < kManyLinks; ++link) {
    ConnectRequest request = need(listener.wait(soon()));
    server.adopt(need(std::move(request).accept(
        need(QueuePair::create(
            server.pd, server.queue, server.queue,
            {.send_length = kMostAhead, .inline_bytes = 16, .shared = &receives})),
        {}, {})));
    need(server.links.back()->wait_established(soon()));
  }
  connecting.get();
}

void ManyLinks::send(std::uint32_t link) {
  const std::uint64_t number = sent[link]++;
  const std::size_t slot = std::size_t{link} * kMostAhead + number % kMostAhead;
  const RegisteredSpan message = clients.slot(slot).first(length_of(link, number));
  write_message(message, link, number);
  need(clients.links[link]->qp.op(slot).signaled().send(message));
}

// Checks a message and answers it with its first 16 bytes.
void ManyLinks::serve(const WorkCompletion& completion) {
  ASSERT_TRUE(completion.ok()) << explain(completion.status).text;
  if (completion.kind != WorkKind::kReceive) return;
  const std::uint32_t link = server.link_of.at(completion.qp_num);
  const std::uint64_t number = server.numbers[link]++;
  const RegisteredSpan buffer = server.slot(completion.wr_id);
  const Bytes message = buffer.bytes().first(completion.byte_length);
  ASSERT_TRUE(is_message(message, link, number)) << "link " << link << ", message " << number;
  need(server.links[link]->qp.op(kSharedReceives).signaled().send(inlined(message.first(16))));
  slots_used.insert(completion.wr_id);
  if (posts_again) need(receives.post(completion.wr_id, buffer));
}

void ManyLinks::hear(const WorkCompletion& completion) {
  ASSERT_TRUE(completion.ok()) << explain(completion.status).text;
  if (completion.kind != WorkKind::kReceive) return;
  const std::uint32_t link = clients.link_of.at(completion.qp_num);
  const std::uint64_t number = clients.numbers[link]++;
  const RegisteredSpan buffer = clients.slot(completion.wr_id);
  ASSERT_EQ(completion.byte_length, 16U);
  EXPECT_EQ(load_le<std::uint64_t>(buffer.bytes().data()), link);
  EXPECT_EQ(load_le<std::uint64_t>(buffer.bytes().data() + 8), number);
  need(clients.links[link]->qp.post_receive(completion.wr_id, buffer));
}

void ManyLinks::talk(std::span<const std::uint32_t> who, std::uint32_t ahead) {
  slots_used.clear();
  std::vector<std::uint32_t> order;
  for (std::uint32_t i = 0; i < ahead; ++i)
    order.insert(order.end(), who.begin(), who.end());
  std::shuffle(order.begin(), order.end(), random);
  for (const std::uint32_t link : order)
    send(link);
  std::size_t left = 4 * order.size();  // two sends and two receives for each message
  std::array<WorkCompletion, 32> some;
  for (const Deadline end = soon(); left != 0;) {
    ASSERT_FALSE(end.passed()) << left << " completions have not come";
    const std::size_t at_server = need(server.queue.poll(some));
    for (const WorkCompletion& one : std::span(some).first(at_server))
      ASSERT_NO_FATAL_FAILURE(serve(one));
    const std::size_t at_clients = need(clients.queue.poll(some));
    left -= at_server;
    for (const WorkCompletion& one : std::span(some).first(at_clients)) {
      // Soft-iWARP flushes the receives of a queue pair that is destroyed.
      if (clients.links[clients.link_of.at(one.qp_num)] == nullptr) continue;
      ASSERT_NO_FATAL_FAILURE(hear(one));
      --left;
    }
    if (at_server + at_clients == 0) std::this_thread::yield();
  }
}

TEST_F(ManyLinks, ShareOneReceiveQueueAndLoseNoMessage) {
  connect_all();
  std::vector<std::uint32_t> all(kManyLinks);
  for (std::uint32_t link = 0; link < kManyLinks; ++link)
    all[link] = link;
  for (int round = 0; round < 4; ++round)
    ASSERT_NO_FATAL_FAILURE(talk(all, 2));
  // Half of the links end, and the receives stay in the queue.
  for (std::uint32_t link = 1; link < kManyLinks; link += 2) {
    clients.links[link].reset();
    server.links[link].reset();
  }
  std::erase_if(all, [](std::uint32_t link) { return link % 2 == 1; });
  ASSERT_NO_FATAL_FAILURE(talk(all, 2));
  // As many messages as there are receives.
  posts_again = false;
  ASSERT_NO_FATAL_FAILURE(talk(all, kMostAhead));
  EXPECT_EQ(slots_used.size(), kSharedReceives);
  for (std::uint32_t link = 0; link < kManyLinks; ++link) {
    EXPECT_EQ(server.numbers[link], sent[link]);
    EXPECT_EQ(clients.numbers[link], sent[link]);
  }
}

}  // namespace
}  // namespace rkv::rdma
