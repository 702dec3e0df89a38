// The thread that answers peers over TCP beside a client allocates nothing in steady state.
#include "rdma/transport/tcp/socket_thread.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>

#include "common/fd.h"
#include "tests/client/count_allocations.h"

namespace rkv::rdma::tcp {
namespace {

// Reads what has come, and says so.
class Reading final : public Watched {
 public:
  explicit Reading(int socket) : socket_(socket) {}
  void on_socket() override {
    char byte = 0;
    while (recv(socket_, &byte, 1, MSG_DONTWAIT) == 1) {
    }
    ++calls;
    calls.notify_all();
  }
  std::uint64_t looks() const override { return 0; }  // its queue's thread is always away
  void await(int more_than) {
    for (int now = calls; now <= more_than; now = calls)
      calls.wait(now);
  }

  std::atomic<int> calls = 0;

 private:
  int socket_;
};

TEST(SocketThread, LooksAndCallsWithoutAllocating) {
  std::array<int, 2> ends{};
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()), 0);
  const Fd near(ends[0]);
  const Fd far(ends[1]);
  Reading reading(near.get());
  SocketThread thread;
  const std::uint64_t number = thread.new_number();
  ASSERT_TRUE(thread.add(number, near.get(), SocketThread::Care::kStandIn, reading));
  const auto rounds = [&](int count) {
    for (int i = 0; i < count; ++i) {
      int before = reading.calls;
      ASSERT_EQ(write(far.get(), "x", 1), 1);  // looked after kAbsent later
      reading.await(before);
      before = reading.calls;
      thread.call_at(number, 1);
      reading.await(before);
    }
  };
  rounds(3);
  const std::size_t before = testing::allocation_count();
  rounds(10);
  EXPECT_EQ(testing::allocation_count(), before);
  thread.remove(number);
}

}  // namespace
}  // namespace rkv::rdma::tcp
