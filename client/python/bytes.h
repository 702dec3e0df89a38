// Bytes of Python's objects: str, and whatever has a buffer (bytes, bytearray, memoryview, numpy).
//
// Thread safety: constructed and destroyed with the interpreter's lock; text() and room() need
// none.
#pragma once

#include <Python.h>
#include <pybind11/pybind11.h>

#include <cstddef>
#include <span>
#include <string_view>
#include <utility>

namespace rkv::python {

// Holds an object's bytes without a copy. The object keeps them where they are while it lives.
class Held {
 public:
  enum class For : unsigned char { kReading, kWriting };
  // Raises TypeError or BufferError: the object has no bytes, or they are not in one piece, or not
  // writable, or they are pointers to objects of Python.
  explicit Held(pybind11::handle object, For what = For::kReading) {
    if (PyUnicode_Check(object.ptr())) {
      if (what == For::kWriting) throw pybind11::type_error("a str cannot be written to");
      Py_ssize_t size = 0;
      const char* const text = PyUnicode_AsUTF8AndSize(object.ptr(), &size);
      if (text == nullptr) throw pybind11::error_already_set();
      owner_ = pybind11::reinterpret_borrow<pybind11::object>(object);
      bytes_ = {text, static_cast<std::size_t>(size)};
      return;
    }
    take_view(object, what == For::kWriting ? PyBUF_CONTIG : PyBUF_CONTIG_RO);
    bytes_ = {static_cast<const char*>(view_.buf), static_cast<std::size_t>(view_.len)};
  }
  ~Held() {
    if (has_view_) PyBuffer_Release(&view_);
  }
  Held(Held&& other) noexcept
      : view_(other.view_),
        has_view_(std::exchange(other.has_view_, false)),
        owner_(std::move(other.owner_)),
        bytes_(other.bytes_) {}
  Held& operator=(Held&&) = delete;

  std::string_view text() const { return bytes_; }
  // REQUIRES For::kWriting.
  std::span<std::byte> room() const {
    return {static_cast<std::byte*>(view_.buf), static_cast<std::size_t>(view_.len)};
  }

 private:
  // Whether a format of PEP 3118 has an object's pointer in it. Names of fields are between colons.
  static bool has_objects(std::string_view format) {
    bool in_name = false;
    for (const char letter : format) {
      if (letter == ':') in_name = !in_name;
      if (letter == 'O' && !in_name) return true;
    }
    return false;
  }
  void take_view(pybind11::handle object, int flags) {
    bool refuses = false;
    if (PyObject_GetBuffer(object.ptr(), &view_, flags | PyBUF_FORMAT) == 0) {
      refuses = view_.format != nullptr && has_objects(view_.format);
    } else {
      // numpy has no format for some types, such as times.
      PyErr_Clear();
      if (PyObject_GetBuffer(object.ptr(), &view_, flags) != 0) throw pybind11::error_already_set();
      const pybind11::object type = pybind11::getattr(object, "dtype", pybind11::none());
      refuses = pybind11::getattr(type, "hasobject", pybind11::none()).is(pybind11::bool_(true));
    }
    has_view_ = !refuses;
    if (has_view_) return;
    PyBuffer_Release(&view_);
    throw pybind11::type_error("the bytes of these objects are pointers of this process");
  }

  Py_buffer view_{};
  bool has_view_ = false;
  pybind11::object owner_;
  std::string_view bytes_;
};

// Raises MemoryError.
inline pybind11::object bytes_of(std::string_view text) {
  PyObject* const made =
      PyBytes_FromStringAndSize(text.data(), static_cast<Py_ssize_t>(text.size()));
  if (made == nullptr) throw pybind11::error_already_set();
  return pybind11::reinterpret_steal<pybind11::object>(made);
}

}  // namespace rkv::python
