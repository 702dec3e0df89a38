// Describes the machine and device of a run. Results mean little without it.
//
// Thread safety: none needed; called once.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace rkv::kvbench {

struct RunsOn {
  std::string kernel{};     // "Linux 6.1.0-18-amd64"
  std::string processor{};  // model name
  unsigned cores = 0;       // online
  std::string device{};     // RDMA device; empty over shared memory
  std::string provider{};   // its kernel driver
  unsigned mtu_bytes = 0;   // of the device's network interface; 0 = not known
  bool is_softroce = false;
};

// `transport`: Client::describe().
RunsOn environment(const std::string& transport);

// Revision of the sources of this program, "33fddae" or "33fddae-dirty".
std::string git_revision();

}  // namespace rkv::kvbench
