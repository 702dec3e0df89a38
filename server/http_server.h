// A small HTTP server for looking at the program: answers GET and HEAD of a few paths, in one
// thread of its own, and cannot be kept from it by clients that are slow, many or long-winded.
//
//   auto server = HttpServer::start("127.0.0.1:9471", {}, clock, [](std::string_view path) {
//     return path == "/healthz" ? HttpAnswer{.body = "ok\n"} : HttpAnswer::not_found();
//   });
//
// Parsing is libmicrohttpd's. (prometheus-cpp's exposer serves its registry and no other path.)
// What is added are the bounds:
//
// Invariants:
//  H1  At most kConnections are open. A new one beyond that ends the oldest: whoever holds them
//      open and sends nothing shuts nobody out.
//  H2  No connection lives longer than kLongestRequest, whatever it sends or reads meanwhile. Each
//      carries one request; its answer ends it.
//  H3  A request's line and headers, and what is read at a time, fit kRequestBytes; a body is not
//      read.
//  H4  Where the process has no descriptor left for a connection, it is taken and closed by way of
//      one kept in reserve, and the log says so: left in the queue it would keep the thread busy.
//  H5  A request that asks a host by a name gets an answer only if the name is localhost, the host
//      listened at or one of `names`; an address in numbers is always good. So a web page from
//      elsewhere, whose name its owner lets lead to this server, learns nothing through the browser
//      of a visitor (DNS rebinding): the browser sends that name.
//
// Thread safety: one owner. `answer` is called by the server's thread, one request at a time; the
// clock is read by it.
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
  // `address`: HOST:PORT, port 0 = any; a name is looked up, which may block. Errors: kUnreachable
  // (no such address here), kConflict (the port is taken), kPermission, kInternal. `names`: of this
  // host, by which it may be asked beside those of H5.
  static Result<std::unique_ptr<HttpServer>> start(const std::string& address,
                                                   std::vector<std::string> names,
                                                   const Clock& clock, Answer answer);
  virtual ~HttpServer() = default;  // stopped; connections are closed

  virtual std::uint16_t port() const = 0;
  virtual std::size_t connections() const = 0;  // any thread

 protected:
  HttpServer() = default;
};

}  // namespace rkv::server
