#include "server/monitor/http_server.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <microhttpd.h>
#include <netdb.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <map>
#include <thread>
#include <utility>
#include <vector>

#include "common/log.h"
#include "common/parse.h"
#include "common/thread.h"
#include "server/persistence/files.h"

namespace rkv::server {

namespace {

// Above our own limit, so that a new connection can always be accepted before an old one is ended
// (HTTPD-1).
constexpr unsigned kLibraryConnections = HttpServer::kConnections + 16;
// How late a connection may be ended (HTTPD-2).
constexpr int kSweepMs = 250;

// Headers of each answer: browsers must not guess its type, cache it, or load anything from
// elsewhere for it.
constexpr std::array<std::pair<const char*, const char*>, 5> kHeaders = {
    {{"Cache-Control", "no-store"},
     {"Connection", "close"},
     {"X-Content-Type-Options", "nosniff"},
     {"Referrer-Policy", "no-referrer"},
     {"Content-Security-Policy",
      "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; "
      "connect-src 'self'; img-src data:; frame-ancestors 'none'"}}};

Error socket_error(const char* call, int error) {
  switch (error) {
    case EADDRINUSE:
      return {
          .code = Code::kConflict, .sys_errno = error, .call = call, .text = "the port is in use"};
    case EADDRNOTAVAIL:
      return {.code = Code::kUnreachable,
              .sys_errno = error,
              .call = call,
              .text = "this host does not have the address"};
    case EACCES:
      return {.code = Code::kPermission,
              .sys_errno = error,
              .call = call,
              .text = "ports below 1024 need root: choose another"};
    default:
      return {.code = Code::kInternal, .sys_errno = error, .call = call};
  }
}

struct FreeAddresses {
  void operator()(addrinfo* addresses) const { freeaddrinfo(addresses); }
};

// Returns a socket that listens at the address.
Result<Descriptor> listen_at(const std::string& address) {
  const std::size_t colon = address.rfind(':');
  std::string host = address.substr(0, colon);
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  addrinfo* found = nullptr;
  if (getaddrinfo(host.c_str(), address.c_str() + colon + 1, &hints, &found) != 0) {
    return fail(Code::kUnreachable, "there is no such address");
  }
  const std::unique_ptr<addrinfo, FreeAddresses> addresses(found);
  Descriptor fd(socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (fd.get() < 0) return std::unexpected(socket_error("socket", errno));
  const int yes = 1;
  setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  if (bind(fd.get(), found->ai_addr, found->ai_addrlen) != 0)
    return std::unexpected(socket_error("bind", errno));
  if (::listen(fd.get(), 64) != 0) return std::unexpected(socket_error("listen", errno));
  return fd;
}

std::uint16_t port_of(int fd) {
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length) != 0) return 0;
  std::array<char, 8> port{};
  if (getnameinfo(reinterpret_cast<sockaddr*>(&address), length, nullptr, 0, port.data(),
                  port.size(), NI_NUMERICSERV) != 0)
    return 0;
  return static_cast<std::uint16_t>(std::stoul(port.data()));
}

std::string lower_case(std::string_view text) {
  std::string out(text);
  for (char& c : out)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return out;
}

// Returns the host in HOST, HOST:PORT or [ADDRESS]:PORT, without brackets and without a dot at the
// end.
std::string host_in(std::string_view text) {
  if (text.starts_with('[')) return std::string(text.substr(1, text.find(']') - 1));
  text = text.substr(0, text.find(':'));
  if (text.ends_with('.')) text.remove_suffix(1);
  return lower_case(text);
}

bool is_numeric(const std::string& host) {
  in6_addr address{};
  return inet_pton(AF_INET, host.c_str(), &address) == 1 ||
         inet_pton(AF_INET6, host.c_str(), &address) == 1;
}

// Returns the part of an address that counts as one host (HTTPD-1).
std::string host_at(const sockaddr* address) {
  if (address == nullptr) return {};
  if (address->sa_family == AF_INET) {
    const auto* const v4 = reinterpret_cast<const sockaddr_in*>(address);
    return {reinterpret_cast<const char*>(&v4->sin_addr), sizeof v4->sin_addr};
  }
  if (address->sa_family != AF_INET6) return {};
  const auto* const bytes = reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr.s6_addr;
  const auto* const text = reinterpret_cast<const char*>(bytes);
  const bool is_v4 =
      IN6_IS_ADDR_V4MAPPED(&reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr);
  return is_v4 ? std::string(text + 12, 4) : std::string(text, 8);
}

HttpAnswer no_such_host(const std::string& host) {
  return {
      .status = MHD_HTTP_MISDIRECTED_REQUEST,
      .body = fmt::format(
          "unknown host name \"{}\": use an address, or start the server with --metrics-names {}\n",
          shown(host), shown(host))};
}

class MicrohttpdServer final : public HttpServer {
 public:
  MicrohttpdServer(std::vector<std::string> names, const Clock& clock, Answer answer)
      : names_(std::move(names)), clock_(clock), answer_(std::move(answer)) {}
  ~MicrohttpdServer() override;
  Status open(Descriptor listening);
  std::uint16_t port() const override { return port_; }
  std::size_t connections() const override { return open_.load(std::memory_order_relaxed); }

 private:
  struct Connection {
    int fd;
    Nanos since;
    std::string host;
    bool ended = false;
  };
  static MHD_Result on_request(void* self, MHD_Connection* connection, const char* url,
                               const char* method, const char* version, const char* body,
                               std::size_t* body_length, void** state);
  static void on_connection(void* self, MHD_Connection* connection, void** state,
                            MHD_ConnectionNotificationCode what);
  static void on_log(void* /*self*/, const char* /*format*/, va_list /*arguments*/) {}
  bool has_name(const std::string& host) const;
  MHD_Result give(MHD_Connection* connection, const HttpAnswer& answer, bool allow);
  void run();
  void wait();
  void take_connections();
  bool somebody_waits() const;
  bool refuse_one();
  void sweep();
  Connection& oldest_of_most();
  void end(Connection& connection);

  std::vector<std::string> names_;  // lower case (HTTPD-5)
  const Clock& clock_;
  const Answer answer_;
  MHD_Daemon* daemon_ = nullptr;
  int epoll_ = -1;
  std::uint16_t port_ = 0;
  Descriptor listening_{-1};
  Descriptor spare_{-1};  // closed to accept a connection when no descriptor is free (HTTPD-4)
  bool listens_ = true;   // false: too many connections, or no descriptor (HTTPD-4)
  Descriptor wake_{-1};
  std::vector<Connection> all_;  // oldest first; the server thread's
  std::atomic<std::size_t> open_{0};
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

MicrohttpdServer::~MicrohttpdServer() {
  stopping_.store(true, std::memory_order_release);
  const std::uint64_t one = 1;
  if (wake_.get() >= 0) (void)!write(wake_.get(), &one, sizeof one);
  if (thread_.joinable()) thread_.join();
  if (daemon_ != nullptr) MHD_stop_daemon(daemon_);
}

Status MicrohttpdServer::open(Descriptor listening) {
  port_ = port_of(listening.get());
  wake_ = Descriptor(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  spare_ = Descriptor(eventfd(0, EFD_CLOEXEC));
  if (wake_.get() < 0 || spare_.get() < 0) return std::unexpected(socket_error("eventfd", errno));
  all_.reserve(kLibraryConnections);
  daemon_ = MHD_start_daemon(MHD_USE_EPOLL | MHD_USE_NO_LISTEN_SOCKET | MHD_USE_ERROR_LOG, 0,
                             nullptr, nullptr, &MicrohttpdServer::on_request, this,           //
                             MHD_OPTION_EXTERNAL_LOGGER, &MicrohttpdServer::on_log, nullptr,  //
                             MHD_OPTION_CONNECTION_LIMIT, kLibraryConnections,                //
                             MHD_OPTION_CONNECTION_MEMORY_LIMIT, kRequestBytes,               //
                             MHD_OPTION_NOTIFY_CONNECTION, &MicrohttpdServer::on_connection, this,
                             MHD_OPTION_END);
  if (daemon_ == nullptr) return std::unexpected(socket_error("MHD_start_daemon", errno));
  listening_ = std::move(listening);
  epoll_ = MHD_get_daemon_info(daemon_, MHD_DAEMON_INFO_EPOLL_FD)->epoll_fd;
  thread_ = std::thread([this] { run(); });
  return {};
}

void MicrohttpdServer::run() {
  name_thread("rkv-http");
  while (!stopping_.load(std::memory_order_acquire)) {
    wait();
    take_connections();
    MHD_run(daemon_);
    sweep();
  }
}

void MicrohttpdServer::wait() {
  unsigned long long wanted_ms = 0;  // NOLINT(google-runtime-int): the library's type
  int wait_ms = all_.empty() && listens_ ? -1 : kSweepMs;
  if (MHD_get_timeout(daemon_, &wanted_ms) == MHD_YES && (wait_ms < 0 || wanted_ms < kSweepMs)) {
    wait_ms = static_cast<int>(std::min<unsigned long long>(wanted_ms, kSweepMs));
  }
  std::array<pollfd, 3> fds = {
      {{.fd = epoll_, .events = POLLIN, .revents = 0},
       {.fd = wake_.get(), .events = POLLIN, .revents = 0},
       {.fd = listens_ ? listening_.get() : -1, .events = POLLIN, .revents = 0}}};
  poll(fds.data(), fds.size(), wait_ms);
}

// Accepts as many connections as the library takes. A connection ended by sweep() counts until the
// library has closed it; until then new connections wait in the queue.
void MicrohttpdServer::take_connections() {
  listens_ = all_.size() < kLibraryConnections;
  // poll() first: accept4() takes a descriptor before it checks for a waiting connection.
  while (listens_ && all_.size() < kLibraryConnections && somebody_waits()) {
    sockaddr_storage address{};
    socklen_t length = sizeof address;
    auto* const from = reinterpret_cast<sockaddr*>(&address);
    const int fd = accept4(listening_.get(), from, &length, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd >= 0) {
      MHD_add_connection(daemon_, fd, from, length);  // closes fd on failure
      continue;
    }
    if (errno == EAGAIN || errno == ECONNABORTED || errno == EINTR) return;
    // Other errors persist: pause, or this thread would retry without end.
    listens_ = (errno == EMFILE || errno == ENFILE) && refuse_one();
    return;
  }
}

bool MicrohttpdServer::somebody_waits() const {
  pollfd one{.fd = listening_.get(), .events = POLLIN, .revents = 0};
  return poll(&one, 1, 0) == 1;
}

// HTTPD-4. False: not even the reserve descriptor helped, because other threads took it once it was
// free.
bool MicrohttpdServer::refuse_one() {
  spare_ = Descriptor(-1);
  const int refused = accept4(listening_.get(), nullptr, nullptr, SOCK_CLOEXEC);
  const bool has_left = refused < 0 && errno == EAGAIN;
  if (refused >= 0) {
    log_warn(EventName("http_no_files"),
             "a connection to --metrics is refused: raise the limit of open files (ulimit -n)");
    close(refused);  // the log says why
  }
  spare_ = Descriptor(eventfd(0, EFD_CLOEXEC));
  return refused >= 0 || has_left;
}

// HTTPD-1, HTTPD-2. The library notices that a connection was shut down, and closes it.
void MicrohttpdServer::sweep() {
  const Nanos now = clock_.now();
  for (Connection& one : all_) {
    if (now - one.since >= kLongestRequest) end(one);
  }
  const auto is_open = [](const Connection& one) { return !one.ended; };
  for (auto open = std::ranges::count_if(all_, is_open);
       open > static_cast<std::ptrdiff_t>(kConnections); --open)
    end(oldest_of_most());
}

// REQUIRES: one is open.
MicrohttpdServer::Connection& MicrohttpdServer::oldest_of_most() {
  std::map<std::string_view, std::size_t> counts;
  for (const Connection& one : all_)
    counts[one.host] += one.ended ? 0 : 1;
  const auto of_host = [&](const Connection& one) { return one.ended ? 0 : counts[one.host]; };
  return *std::ranges::max_element(all_, {}, of_host);  // the first of the greatest
}

void MicrohttpdServer::end(Connection& connection) {
  if (!std::exchange(connection.ended, true)) shutdown(connection.fd, SHUT_RDWR);
}

void MicrohttpdServer::on_connection(void* self, MHD_Connection* connection, void** /*state*/,
                                     MHD_ConnectionNotificationCode what) {
  auto& server = *static_cast<MicrohttpdServer*>(self);
  const int fd = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd;
  if (what == MHD_CONNECTION_NOTIFY_STARTED) {
    const sockaddr* const from =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CLIENT_ADDRESS)->client_addr;
    server.all_.push_back({.fd = fd, .since = server.clock_.now(), .host = host_at(from)});
  } else {
    std::erase_if(server.all_, [&](const Connection& one) { return one.fd == fd; });
  }
  server.open_.store(server.all_.size(), std::memory_order_relaxed);
}

// Answers at the first call, when the headers have arrived: a body is never read (HTTPD-3).
MHD_Result MicrohttpdServer::on_request(void* self, MHD_Connection* connection, const char* url,
                                        const char* method, const char* /*version*/,
                                        const char* /*body*/, std::size_t* /*body_length*/,
                                        void** /*state*/) {
  auto& server = *static_cast<MicrohttpdServer*>(self);
  // All current browsers send the header; a request without it is not from a browser.
  if (const char* const host = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, "Host")) {
    const std::string name = host_in(host);
    if (!server.has_name(name)) return server.give(connection, no_such_host(name), false);
  }
  const std::string_view verb = method;
  if (verb != MHD_HTTP_METHOD_GET && verb != MHD_HTTP_METHOD_HEAD) {
    const HttpAnswer refusal{.status = MHD_HTTP_METHOD_NOT_ALLOWED,
                             .body = "only GET and HEAD: the server is read-only over HTTP\n"};
    return server.give(connection, refusal, true);
  }
  return server.give(connection, server.answer_(url), false);
}

// HTTPD-5.
bool MicrohttpdServer::has_name(const std::string& host) const {
  return host == "localhost" || host.ends_with(".localhost") || is_numeric(host) ||
         std::ranges::find(names_, host) != names_.end();
}

MHD_Result MicrohttpdServer::give(MHD_Connection* connection, const HttpAnswer& answer,
                                  bool allow) {
  // The library takes a pointer to non-const, but copies the bytes.
  MHD_Response* const response = MHD_create_response_from_buffer(
      answer.body.size(), const_cast<char*>(answer.body.data()), MHD_RESPMEM_MUST_COPY);
  if (response == nullptr) return MHD_NO;
  MHD_add_response_header(response, "Content-Type", answer.type);
  for (const auto& [name, value] : kHeaders)
    MHD_add_response_header(response, name, value);
  if (allow) MHD_add_response_header(response, "Allow", "GET, HEAD");
  const MHD_Result queued = MHD_queue_response(connection, answer.status, response);
  MHD_destroy_response(response);
  return queued;
}

}  // namespace

HttpAnswer HttpAnswer::not_found() {
  return {.status = 404,
          .body = "no such page: the pages are /, /metrics, /status, /healthz, /readyz\n"};
}

Result<std::unique_ptr<HttpServer>> HttpServer::start(const std::string& address,
                                                      std::vector<std::string> names,
                                                      const Clock& clock, Answer answer) {
  RKV_ASSIGN_OR_RETURN(Descriptor listening, listen_at(address));
  for (std::string& name : names)
    name = host_in(name);
  names.push_back(host_in(address));
  auto server = std::make_unique<MicrohttpdServer>(std::move(names), clock, std::move(answer));
  RKV_RETURN_IF_ERROR(server->open(std::move(listening)));
  return std::unique_ptr<HttpServer>(std::move(server));
}

}  // namespace rkv::server
