// A small HTTP server for monitoring: answers GET and HEAD of a few paths in one thread of its own.
// Slow, many or verbose clients cannot stop it from answering.
//
//   auto server = HttpServer::start("127.0.0.1:9471", {}, clock, [](std::string_view path) {
//     return path == "/healthz" ? HttpAnswer{.body = "ok\n"} : HttpAnswer::not_found();
//   });
//
// libmicrohttpd parses. (prometheus-cpp's exposer serves its registry and no other path.) This
// class adds the bounds:
//
// Invariants:
//  HTTPD-1  At most kConnections are open. A further one ends the oldest of the host that has most:
//      clients that hold connections open without sending cannot lock others out, and one that
//      opens them without pause ends its own, not the slow request of another host. An IPv6 network
//      of 64 bits counts as a host.
//  HTTPD-2  No connection lives longer than kLongestRequest, whatever it sends or reads. Each
//      carries one request and ends with its answer.
//  HTTPD-3  The request line, the headers and the read buffer fit kRequestBytes; a body is not
//      read.
//  HTTPD-4  When the process has no descriptor for a connection, the connection is accepted with a
//      reserve descriptor, closed and logged. If it stayed in the queue, the thread would be woken
//      for it all the time.
//  HTTPD-5  A request that names its host gets an answer only if the name is localhost, the host of
//      the listen address or one of `names`; a numeric address is always accepted. This stops DNS
//      rebinding: the name of a foreign web page may resolve to this server, but a visitor's
//      browser sends that name, so the page learns nothing.
//
// Thread safety: one owner. The server's thread calls `answer`, one request at a time, and reads
// the clock.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "common/clock.h"
#include "rkv/result.h"

namespace rkv::server {

struct HttpAnswer {
  unsigned status = 200;
  const char* type = "text/plain; charset=utf-8";  // static
  std::string body;

  static HttpAnswer not_found();
};

class HttpServer {
 public:
  static constexpr std::size_t kConnections = 32;
  static constexpr Nanos kLongestRequest = 10 * kNanosPerSecond;
  static constexpr std::size_t kRequestBytes = std::size_t{16} << 10;

  using Answer = std::function<HttpAnswer(std::string_view path)>;
  // Starts listening. `address`: HOST:PORT, port 0 = any. A host name is resolved, which may block.
  // `names`: names of this host that requests may use besides those of HTTPD-5. Errors:
  // kUnreachable (this host does not have the address), kConflict (the port is taken), kPermission,
  // kInternal.
  static Result<std::unique_ptr<HttpServer>> start(const std::string& address,
                                                   std::vector<std::string> names,
                                                   const Clock& clock, Answer answer);
  virtual ~HttpServer() = default;  // stops the thread; closes all connections

  virtual std::uint16_t port() const = 0;
  virtual std::size_t connections() const = 0;  // any thread

 protected:
  HttpServer() = default;
};

}  // namespace rkv::server
