// expect: writing variable 'value_' requires holding mutex 'mutex_' exclusively
// only: clang
// needs: common/mutex.h

class Cell {
 public:
  int get() {
    const rkv::ReaderLock lock(mutex_);
    return value_;
  }
  void set(int value) {
#ifndef RKV_WRONG
    const rkv::WriterLock lock(mutex_);
#else
    const rkv::ReaderLock lock(mutex_);
#endif
    value_ = value;
  }

 private:
  rkv::SharedMutex mutex_;
  int value_ RKV_GUARDED_BY(mutex_) = 0;
};

int use(Cell& cell) {
  cell.set(1);
  return cell.get();
}
