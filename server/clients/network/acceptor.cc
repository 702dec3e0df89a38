#include "server/clients/network/acceptor.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <utility>
#include <variant>

#include "common/check.h"
#include "common/log.h"
#include "common/random.h"
#include "common/thread.h"

namespace rkv::server {

namespace {
// Clients are accepted one after the other, so this bounds how long one may delay the others.
constexpr std::int64_t kAcceptMs = 2000;
constexpr std::int64_t kTurnMs = 100;
// Such a client would not notice that the data it READs is out of date.
constexpr const char* kTooOld =
    "the server is in a replicated group, which this client does not know: install a newer client";

// A client's name goes into log lines: it must not imitate one or move a terminal's cursor.
std::string printable(std::string_view name) {
  std::string out(name);
  for (char& c : out) {
    if (c < ' ' || c > '~' || c == '"') c = '?';
  }
  return out;
}
}  // namespace

Acceptor::~Acceptor() {
  RKV_CHECK(!thread_.joinable(), "an acceptor is destroyed while it runs");
}

void Acceptor::start() {
  thread_ = std::thread([this] {
    name_thread("rkv-accept");
    while (!stopping_.load(std::memory_order_acquire)) {
      step(kTurnMs);
      turns_.fetch_add(1, std::memory_order_relaxed);
    }
  });
}

void Acceptor::admit(Admission admission) {
  admission_ = std::move(admission);
  if (admission_.places == nullptr) {
    admission_.places = std::make_shared<Places>(admission_.max_clients, admission_.max_offences);
  }
  open_.store(true, std::memory_order_release);
}

void Acceptor::refuse_as_backup(std::string primary) {
  const MutexLock lock(primary_mutex_);
  primary_ = std::move(primary);
}

void Acceptor::close(std::string primary) {
  refuse_as_backup(std::move(primary));
  open_.store(false, std::memory_order_release);
}

void Acceptor::change_windows(const Windows& windows) {
  const MutexLock lock(windows_mutex_);
  admission_.root = windows.root;
  admission_.hints = windows.hints;
  admission_.counters = windows.counters;
}

Acceptor::Windows Acceptor::windows() {
  const MutexLock lock(windows_mutex_);
  return {admission_.root, admission_.hints, admission_.counters};
}

void Acceptor::stop() {
  if (!thread_.joinable()) return;
  stopping_.store(true, std::memory_order_release);
  listener_.wake();
  thread_.join();
}

void Acceptor::step(std::int64_t wait_ms) {
  auto incoming = listener_.next(Deadline::after_ms(clock_, wait_ms));
  if (!incoming) {
    log_error(EventName("listening_failed"), "listening failed: {}", to_string(incoming.error()));
    std::this_thread::sleep_for(std::chrono::milliseconds(kTurnMs));  // the error may persist
    return;
  }
  if (*incoming != nullptr) answer(**incoming);
}

void Acceptor::answer(rdma::Incoming& incoming) {
  const auto request = decode_connect_request(incoming.private_data());
  if (!request) {
    const Error& error = request.error();
    return refuse(
        incoming,
        error.code == Code::kVersionMismatch ? RefusalReason::kVersion : RefusalReason::kMalformed,
        error.code, error.text);
  }
  if (!open_.load(std::memory_order_acquire)) {
    return refuse_unopened(incoming, *request);
  }
  if (admission_.in_group && !request->checks_group) {
    return refuse(incoming, RefusalReason::kVersion, Code::kVersionMismatch, kTooOld);
  }
  if (admission_.places->offends(incoming.peer(), clock_.now())) {
    return refuse(incoming, RefusalReason::kOffences, Code::kBusy,
                  "clients of this host, over shared memory of this process, misbehaved too often: "
                  "try again in a moment");
  }
  // Identify the client before anything is ended, counted or reserved for it.
  const std::string called = incoming.called();
  const auto identity = identify(incoming, *request, called);
  if (!identity) return;
  // A client that reconnects has abandoned its old connection. Requests from there that were not
  // begun must not be executed after requests from the new connection.
  if (!end_old_session(request->session_to_resume, *identity)) {
    return refuse(incoming, RefusalReason::kResuming, Code::kBusy,
                  "the client's last connection is still being ended");
  }
  Worker* const worker = reserve_place();
  if (worker == nullptr) {
    if (const auto session = admission_.places->victim(incoming.peer(), clock_.now())) {
      for (Worker* each : admission_.all_workers)
        each->sessions().give_up(*session);
    }
    return refuse(incoming, RefusalReason::kFull, Code::kBusy,
                  fmt::format("the server has {} clients, its limit: try again later, or raise "
                              "--max-clients",
                              admission_.max_clients));
  }
  accept(incoming, *request, *identity, *worker);
}

void Acceptor::refuse_unopened(rdma::Incoming& incoming, const ConnectRequest& request) {
  std::optional<std::string> primary;
  {
    const MutexLock lock(primary_mutex_);
    primary = primary_;
  }
  if (!primary) {
    return refuse(incoming, RefusalReason::kStarting, Code::kBusy,
                  "the server is loading its data: try again in a moment");
  }
  if (!request.checks_group) {
    return refuse(incoming, RefusalReason::kVersion, Code::kVersionMismatch, kTooOld);
  }
  refuse(incoming, RefusalReason::kBackup, Code::kNotPrimary,
         primary->empty() ? "a backup: it knows no primary" : "a backup of", *primary);
}

std::optional<Acceptor::Identity> Acceptor::identify(rdma::Incoming& incoming,
                                                     const ConnectRequest& request,
                                                     const std::string& called) {
  if (admission_.authentication == nullptr && request.user == 0) return Identity{};
  if (admission_.authentication == nullptr) {
    refuse(incoming, RefusalReason::kUnproved, Code::kUnauthenticated,
           "the server has no users: leave out the user and its secret");
    return std::nullopt;
  }
  const Route route{.called = called, .origin = Places::origin_of(incoming.peer())};
  const auto checked = admission_.authentication->check(request, route, clock_.now());
  if (const auto* const proved = std::get_if<Authentication::Proved>(&checked)) {
    return Identity{.user = proved->user, .claim = proved->claim};
  }
  if (const auto* const challenged = std::get_if<Authentication::Challenged>(&checked)) {
    challenge(incoming, challenged->challenge);
    return std::nullopt;
  }
  const auto& refused = std::get<Authentication::Refused>(checked);
  const std::string other_address =
      refused.is_wrong_proof ? fmt::format("; or the client called another address than {}", called)
                             : std::string();
  refuse(incoming, RefusalReason::kUnproved, refused.code, refused.text + other_address,
         /*primary=*/{}, refused.user == nullptr ? "" : refused.user->name);
  return std::nullopt;
}

// Each client with a user is challenged first, so this is not logged.
void Acceptor::challenge(rdma::Incoming& incoming, const Challenge& challenge) {
  add_to(challenged_, 1);
  std::array<std::byte, kConnectRejectMaxBytes> reason{};
  const std::size_t length = encode(
      ConnectReject{
          .code = Code::kUnauthenticated, .text = "prove who you are", .challenge = challenge},
      reason);
  incoming.reject(Bytes(reason).first(length));
}

// The answer is sent before the log line: the time to log a user's name must not reveal whether
// there is such a user.
void Acceptor::refuse(rdma::Incoming& incoming, RefusalReason why, Code code, std::string_view text,
                      std::string_view primary, std::string_view user) {
  add_to(refused_[static_cast<std::size_t>(why)], 1);
  std::array<std::byte, kConnectRejectMaxBytes> reason{};
  const std::size_t length =
      encode(ConnectReject{.code = code, .text = text, .primary = primary}, reason);
  incoming.reject(Bytes(reason).first(length));
  log_info(EventName("client_refused"), "client {}{}{} is refused: {}{}{}",
           field("peer", incoming.peer()), user.empty() ? "" : " of user ", field("user", user),
           field("why", text), primary.empty() ? "" : " ", primary);
}

// A user can end its own sessions only, whatever number the request names.
bool Acceptor::end_old_session(std::uint64_t session, const Identity& identity) {
  if (session == 0) return true;
  const Deadline deadline = Deadline::after_ms(clock_, kAcceptMs);
  Worker* const worker = admission_.all_workers[session % admission_.all_workers.size()];
  return worker->sessions().end_session(session, deadline,
                                        identity.user == nullptr ? "" : identity.user->name);
}

std::uint64_t Acceptor::new_session(const Worker& worker) const {
  const std::vector<Worker*>& all = admission_.all_workers;
  const auto place = static_cast<std::uint64_t>(std::ranges::find(all, &worker) - all.begin());
  // With the top bit set the result is never 0 and no step overflows.
  const std::uint64_t random = random_from_kernel() | std::uint64_t{1} << 63;
  return random - random % all.size() - all.size() + place;
}

Worker* Acceptor::reserve_place() {
  std::uint32_t clients = 0;
  for (const Worker* worker : admission_.all_workers)
    clients += worker->sessions().clients();
  if (clients >= admission_.max_clients) return nullptr;
  for (std::size_t tried = 0; tried < admission_.workers.size(); ++tried) {
    Worker* const worker = admission_.workers[next_worker_];
    next_worker_ = (next_worker_ + 1) % admission_.workers.size();
    if (worker->sessions().reserve_client()) return worker;
  }
  return nullptr;
}

ConnectAccept Acceptor::accept_of(const ConnectRequest& request, const Identity& identity,
                                  const Worker& worker) {
  const std::uint16_t wanted = request.credits_wanted == 0 ? kMaxCredits : request.credits_wanted;
  const Windows windows = this->windows();
  const bool reads_only = identity.role() == Role::kRead;
  return {.epoch = admission_.epoch,
          .session = new_session(worker),
          .credits = std::min(wanted, kMaxCredits),
          .max_message_bytes = kMaxMessageBytes,
          .max_sent_bytes = worker.room().receive_bytes,
          .root = windows.root,
          .hints = reads_only ? RemoteWindow{} : windows.hints,
          .counters = reads_only ? RemoteWindow{} : windows.counters,
          .server_us = static_cast<std::uint64_t>(clock_.now() / kNanosPerUs),
          .max_packed = worker.room().max_packed,
          .in_group = admission_.in_group,
          .store = admission_.store};
}

void Acceptor::accept(rdma::Incoming& incoming, const ConnectRequest& request,
                      const Identity& identity, Worker& worker) {
  ConnectAccept answer = accept_of(request, identity, worker);
  if (identity.user != nullptr) answer.answer.emplace();
  std::array<std::byte, kConnectAcceptMaxBytes> bytes{};
  std::size_t length = encode(answer, bytes);
  if (identity.user != nullptr) {
    answer.answer =
        make_answer(identity.user->keys, identity.claim, Bytes(bytes).first(kConnectAnswerOffset));
    length = encode(answer, bytes);
  }
  // The name is copied now: the request's bytes are freed with `incoming`.
  NewClient client{.connection = nullptr,
                   .session = answer.session,
                   .credits = answer.credits,
                   .name = identity.user != nullptr ? identity.user->name : printable(request.name),
                   .place = admission_.places->take(answer.session, incoming.peer(), clock_.now()),
                   .user = identity.user};
  auto connection =
      incoming.accept(worker.queue(), worker.connection_options(identity.role()),
                      Bytes(bytes).first(length), Deadline::after_ms(clock_, kAcceptMs));
  if (!connection) {
    worker.sessions().cancel_client();
    return refuse(incoming, RefusalReason::kFailed, connection.error().code,
                  to_string(connection.error()));
  }
  client.connection = std::move(*connection);
  worker.sessions().adopt(std::move(client));
}

}  // namespace rkv::server
