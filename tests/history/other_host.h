// The second machine of `./run softroce --nodes 2`: commands there, and the machine itself paused
// or ended by its emulator.
//
//   OtherHost host;
//   host.run("tc qdisc add dev eth0 root netem loss 1%");
//
// Thread safety: none.
#pragma once

#include <sys/types.h>

#include <string>

namespace rkv::history {

class OtherHost {
 public:
  // The address of its RDMA device; empty without a second machine.
  static std::string address();

  OtherHost();
  ~OtherHost();
  OtherHost(const OtherHost&) = delete;
  OtherHost& operator=(const OtherHost&) = delete;

  // Runs a command in a shell that stays, so that it takes effect at once; returns its output. A
  // command that fails fails the test.
  std::string run(const std::string& command);

  // All of the machine stands still, its clocks included, and sends nothing.
  void pause_machine() const;
  void continue_machine() const;
  // Without a word to anybody, and for good.
  void end_machine() const;

 private:
  std::string read_until(const std::string& end);

  pid_t pid_ = -1;
  int input_ = -1;   // of the shell
  int output_ = -1;  // of the shell
  int commands_ = 0;
  std::string unread_;
};

}  // namespace rkv::history
