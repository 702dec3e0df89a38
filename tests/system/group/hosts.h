// Hosts of their own on this machine: network namespaces that a bridge joins, and this process on
// the bridge. The way from one to another can be cut, in either direction.
//
//   const Hosts hosts(3);
//   ...                                      // runs hosts.enter(0) + program
//   hosts.cut(0, hosts.address(1));          // what host 0 sends to host 1 is lost
//   hosts.close_port(2, 24004);              // nobody connects to that port of host 2
//   hosts.heal();
//
// Needs root, or a system where users may make name spaces; else the test fails and says so. While
// one lives, this thread, and the threads and processes that it starts, are on the bridge alone.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "tests/system/process.h"

namespace rkv::testing_support {

class Hosts {
 public:
  explicit Hosts(std::size_t count);
  ~Hosts();
  Hosts(const Hosts&) = delete;
  Hosts& operator=(const Hosts&) = delete;

  std::size_t count() const { return keepers_.size(); }
  std::string address(std::size_t host) const;
  // An argv that runs the rest of it on the host.
  std::vector<std::string> enter(std::size_t host) const;
  // This process's addresses: it calls from the first, and a server may listen on the second.
  static std::string own_address();
  static std::string second_address();

  void cut(std::size_t host, const std::string& address) const;
  // Packets to this TCP port of the host are lost, as behind a firewall.
  void close_port(std::size_t host, int port) const;
  void heal() const;  // all that was cut or closed

 private:
  int before_ = -1;                                // the name space that this thread was in
  std::vector<std::unique_ptr<Process>> keepers_;  // of the name spaces
};

}  // namespace rkv::testing_support
