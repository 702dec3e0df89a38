// HTTP clients of a server, like curl: a function for one GET per connection, and a thread that
// sends GETs repeatedly.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <thread>

namespace rkv::testing {

struct Looked {
  int status = 0;    // 0: the server does not answer any more
  std::string text;  // headers and body
};

inline Looked look_at(std::uint16_t port, const std::string& path) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const timeval longest{.tv_sec = 60, .tv_usec = 0};
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &longest, sizeof longest);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  Looked looked;
  if (connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) {
    const std::string request = "GET " + path + " HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n";
    (void)!send(fd, request.data(), request.size(), MSG_NOSIGNAL);
    std::array<char, 65536> bytes{};
    for (ssize_t got = 0; (got = recv(fd, bytes.data(), bytes.size(), 0)) > 0;)
      looked.text.append(bytes.data(), static_cast<std::size_t>(got));
    if (looked.text.starts_with("HTTP/1.1 ")) looked.status = std::atoi(looked.text.c_str() + 9);
  }
  close(fd);
  return looked;
}

// Requests all paths in turn until the server does not answer any more. After may_stop(), 503 is a
// valid answer, and a connection may be cut off.
class Looker {
 public:
  explicit Looker(std::uint16_t port) : thread_([this, port] { run(port); }) {}
  ~Looker() { join(); }
  Looker(const Looker&) = delete;
  Looker& operator=(const Looker&) = delete;

  // The number of completed rounds over all paths.
  int rounds() const { return rounds_.load(); }
  void may_stop() { may_stop_.store(true); }
  // Blocks until the server does not answer any more.
  void join() {
    if (thread_.joinable()) thread_.join();
  }

 private:
  void run(std::uint16_t port) {
    for (;; ++rounds_) {
      for (const char* path : {"/", "/metrics", "/status", "/healthz", "/readyz"}) {
        const bool may_stop = may_stop_.load();
        const Looked looked = look_at(port, path);
        if (looked.status == 0 && may_stop) return;
        const bool fine = looked.status == 200 || (looked.status == 503 && may_stop_.load());
        EXPECT_TRUE(fine) << path << "\n" << looked.text;
        if (!fine) return;
      }
    }
  }

  std::atomic<int> rounds_ = 0;
  std::atomic<bool> may_stop_ = false;
  std::thread thread_;
};

}  // namespace rkv::testing
