// A kvserver on the second machine, with a data directory there.
//
// Thread safety: none.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tests/history/other_host.h"
#include "tests/system/process.h"

namespace rkv::history {

class OtherServer {
 public:
  // `arguments`: added to those of kvserver.
  explicit OtherServer(OtherHost& host, std::string arguments = "");

  const std::string& address() const { return address_; }
  // Returns when it is ready; after a kill with the same data.
  void start();
  // Returns when it has ended.
  void kill();
  void suspend();
  void go_on();
  // The server's process, with its output since the last start().
  testing_support::Process& process() { return *process_; }
  // EXPECTs a clean end and memory that is well.
  void stop_and_check();

 private:
  void signal(const std::string& name);

  OtherHost& host_;
  const std::string arguments_;
  std::string address_;
  std::string directory_;
  std::string pid_;
  std::unique_ptr<testing_support::Process> process_;  // carries its output here
};

}  // namespace rkv::history
