// Chooses the transport: the requested one, or the one that this machine supports.
//
//   auto   an RDMA device that reaches the address, else shared memory with this host. A server
//          with a device listens on both.
//   verbs  the device, or an error that says why not
//   shm    shared memory
//
// Each choice comes with one line of text that says what was chosen and why.
// Thread safety: free functions, any thread. Both block for VerbsOptions::find_ms at most.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "rdma/transport/reopening/transport.h"
#include "rdma/transport/transport.h"

namespace rkv::rdma {

enum class TransportKind : std::uint8_t { kAuto, kVerbs, kShm };
const char* to_string(TransportKind kind);
std::optional<TransportKind> parse_transport_kind(std::string_view text);  // "auto", ...

struct TransportOptions {
  TransportKind kind = TransportKind::kAuto;
  VerbsOptions verbs{};  // if a device is named, auto does not fall back to shm
  ShmOptions shm{};
};

struct ClientTransport {
  std::unique_ptr<Transport> transport;
  std::string reason{};
};
Result<ClientTransport> choose_for_client(const TransportOptions& options);

struct ServerTransports {
  std::unique_ptr<Transport> verbs{};  // one of them may be null
  std::unique_ptr<Transport> shm{};
  std::string reason{};
  // Opens verbs again with the options of this choice, after the device is lost
  // (reopening/transport.h).
  OpenTransport reopen_verbs{};
};
Result<ServerTransports> choose_for_server(const TransportOptions& options);

}  // namespace rkv::rdma
