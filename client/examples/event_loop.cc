// Coroutines of one thread that share a connection, on an event loop of epoll. Each adds 1 to a
// number, on the condition that no other has changed the number since it was read.
//
//   event_loop [HOST:PORT]
#include <rkv/async_client.h>
#include <sys/epoll.h>

#include <array>
#include <coroutine>
#include <cstdio>
#include <exception>
#include <string>

namespace {

// A coroutine that runs until its first wait at once, and then from the event loop.
struct Task {
  struct promise_type {
    Task get_return_object() { return {}; }
    std::suspend_never initial_suspend() noexcept { return {}; }
    std::suspend_never final_suspend() noexcept { return {}; }
    void return_void() {}
    void unhandled_exception() { std::terminate(); }
  };
};

struct Tally {
  int added = 0;
  int repeated = 0;
  bool failed = false;
};

// Adds 1 to a number that is kept as text. The version says whether another task was faster.
Task add_one(rkv::AsyncClient& client, std::string key, Tally& tally) {
  for (;;) {
    const auto got = co_await client.get(key);
    if (!got) break;
    const std::string next = std::to_string(std::stoi(got->value) + 1);
    const auto put = co_await client.put_with(key, next, {.if_version = got->version});
    if (put) {
      ++tally.added;
      co_return;
    }
    if (put.error().code != rkv::Code::kConflict) break;
    ++tally.repeated;
  }
  tally.failed = true;
}

}  // namespace

int main(int argc, char** argv) {
  auto client = rkv::AsyncClient::connect({.server = argc > 1 ? argv[1] : "127.0.0.1:7471"});
  if (!client) {
    std::fprintf(stderr, "connect: %s\n", rkv::to_string(client.error()).c_str());
    return 1;
  }
  const std::array<std::string, 4> keys = {"north", "east", "south", "west"};
  Tally tally;
  for (const std::string& key : keys) {
    client->put(key, "0").then([&tally](const rkv::Result<std::uint64_t>& put) {
      if (!put) tally.failed = true;
    });
  }

  const int epoll = epoll_create1(EPOLL_CLOEXEC);
  epoll_event event{};
  event.events = EPOLLIN;
  epoll_ctl(epoll, EPOLL_CTL_ADD, client->descriptor(), &event);
  const auto run = [&] {  // a program has other descriptors here, too
    while (client->in_flight() != 0) {
      client->poll();
      if (client->in_flight() != 0 && client->arm()) epoll_wait(epoll, &event, 1, -1);
    }
  };
  run();
  for (int task = 0; task < 100; ++task)
    add_one(*client, keys[static_cast<std::size_t>(task) % keys.size()], tally);
  run();

  int sum = 0;
  for (const std::string& key : keys) {
    client->get(key).then([&](const rkv::Result<rkv::ValueView>& got) {
      if (got) sum += std::stoi(std::string(got->value));
    });
  }
  run();
  std::printf("100 tasks added %d, and %d is stored\n", tally.added, sum);
  return tally.failed ? 1 : 0;
}
