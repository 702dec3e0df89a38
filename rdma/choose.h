// Chooses the transport: the requested one, or the one that this machine supports.
//
//   auto   of a client: an RDMA device that reaches the address, else shared memory if all of its
//          servers are of this host, else TCP. Of a server: a device or else TCP, and shared memory
//          besides.
//   verbs  the device, or an error that says why not
//   shm    shared memory
//   tcp    TCP, which is not RDMA
//
// Each choice comes with one line of text that says what was chosen and why.
// Thread safety: free functions, any thread. Both block for VerbsOptions::find_ms at most, and
// again so long where shared memory or TCP may do instead.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "rdma/transport/reopening/transport.h"
#include "rdma/transport/transport.h"

namespace rkv::rdma {

enum class TransportKind : std::uint8_t { kAuto, kVerbs, kShm, kTcp };
const char* to_string(TransportKind kind);
std::optional<TransportKind> parse_transport_kind(std::string_view text);  // "auto", ...

struct TransportOptions {
  TransportKind kind = TransportKind::kAuto;
  VerbsOptions verbs{};  // if a device is named, auto takes nothing else
  ShmOptions shm{};
  // For a client: all addresses that it may call, one after another. Empty: VerbsOptions::address.
  std::vector<std::string> servers{};
};

struct ClientTransport {
  std::unique_ptr<Transport> transport;
  std::string reason{};
};
Result<ClientTransport> choose_for_client(const TransportOptions& options);

struct ServerTransports {
  std::unique_ptr<Transport> verbs{};  // at least one of them is there
  std::unique_ptr<Transport> tcp{};
  std::unique_ptr<Transport> shm{};
  std::string reason{};
  // Opens verbs again with the options of this choice, after the device is lost
  // (reopening/transport.h).
  OpenTransport reopen_verbs{};
};
Result<ServerTransports> choose_for_server(const TransportOptions& options);

}  // namespace rkv::rdma
