// A kvserver under test, in a process of its own, and clients of it.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "rdma/choose.h"
#include "rkv/client.h"
#include "tests/system/process.h"

namespace rkv::testing_support {

// The transport of the tests: RKV_TEST_TRANSPORT, "verbs", "shm" or "tcp". The programs under test
// get it from KVSERVER_TRANSPORT and KVCLIENT_TRANSPORT (CMakeLists.txt).
Transport test_transport();
rdma::TransportKind test_transport_kind();

// The address to listen on and to connect to: that of the RDMA device (fails the test when there
// is none); over shared memory and TCP one of this host.
std::string test_address();

// A directory that is removed at the end.
class ScratchDirectory {
 public:
  ScratchDirectory();
  ~ScratchDirectory();
  ScratchDirectory(const ScratchDirectory&) = delete;
  ScratchDirectory& operator=(const ScratchDirectory&) = delete;
  std::string path(const std::string& name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

class Server {
 public:
  // Starts `kvserver --listen ADDRESS` with these arguments besides; REQUIREs that it gets ready.
  // Environment entries "NAME=VALUE" are added to ours.
  explicit Server(std::vector<std::string> arguments = {"--memory", "32MiB"},
                  std::vector<std::string> environment = {});

  const std::string& address() const { return address_; }
  Process& process() { return *process_; }
  void kill();  // SIGKILL, reaped
  int stop();   // SIGTERM; the exit status
  // The same, and EXPECTs that it was clean and that the memory was well (--check-memory).
  void stop_and_check();
  void start();  // again, with the same arguments and address
  // Connected to it, over the transport under test unless options name another.
  Client client(ClientOptions options = {});

 private:
  std::string address_;
  std::vector<std::string> argv_;
  std::vector<std::string> environment_;
  std::unique_ptr<Process> process_;
};

// Runs kvclient against an address.
Ended kvclient(const std::string& address, std::vector<std::string> arguments);

// One number of the server's statistics.
std::uint64_t server_stat(Client& client, const std::string& name);

}  // namespace rkv::testing_support
