// Programs under test as child processes: started without a shell, output to a file that is shown
// when something fails, always reaped.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace rkv::testing_support {

// How a process ended: `status` when it exited, else minus the signal's number.
struct Ended {
  int status = 0;
  std::string output;  // stdout and stderr, in the order written
};

class Process {
 public:
  // argv[0] is a path. Environment entries "NAME=VALUE" are added to ours. Aborts the test on
  // failure to start.
  explicit Process(std::vector<std::string> argv, std::vector<std::string> environment = {});
  ~Process();  // kills and reaps what still runs
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  pid_t pid() const { return pid_; }
  bool running();
  // SIGSTOP blocks until the process has stopped.
  void signal(int number) const;
  // Blocks until the process has ended or `limit_s` have passed; then kills it and reports -9.
  Ended wait(int limit_s = 120);
  // Blocks until the output holds `text`; false when the process ends or the limit passes first.
  bool wait_for_output(const std::string& text, int limit_s = 120);
  std::string output() const;

 private:
  bool reap(bool block);
  pid_t pid_ = -1;
  bool ended_ = false;
  int status_ = 0;
  std::string log_path_;
};

// Runs a program to its end.
Ended run_program(std::vector<std::string> argv, int limit_s = 120);

}  // namespace rkv::testing_support
