// The standard descriptors 0 to 2: any of them may be closed, full, a pipe without a reader, or a
// terminal that has hung up.
//
//   int main(...) { rkv::keep_standard_descriptors(); ... }
//   rkv::write_to_stderr("kvclient: cannot ...\n", rkv::kReaderWaitMs);
//
// Thread safety: write_to_stderr() may be called by any thread.
#pragma once

#include <string_view>

namespace rkv {

// Puts something in place of each standard descriptor that is closed, so that no file or socket
// gets its number. Reading it or writing to it fails, as with a closed descriptor. Call first in
// main(), before any descriptor is opened; also a program that is executed again needs it.
void keep_standard_descriptors();

// Waits this long for a reader that is slow, where no other work waits for the writer.
inline constexpr int kReaderWaitMs = 5000;

// Writes text to descriptor 2. Returns false if it could not be written whole. Raises no SIGPIPE
// and keeps errno. Waits for a reader at most `wait_ms` for every 4 KiB; 0: text for which there is
// no room is dropped. Two exceptions: a file is as slow as its disk; and if another process fills
// the same pipe between the check for room and the write, the write waits for the reader.
bool write_to_stderr(std::string_view text, int wait_ms);

}  // namespace rkv
