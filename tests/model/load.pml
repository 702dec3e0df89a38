/* Records on disk against a writer, the apply stream, eviction, and a disk that fails.
 *
 * Mirrors server/store/disk_tier.cc, loader.cc, disk_fetcher.cc, warm_up.cc, removal_sequences.h (REMSEQ-1, REMSEQ-2) and disk_reads.h (DREAD-1,
 * DREAD-2): a GET of a key that is not in memory, and the warm-up after a start.
 *
 * Modelled: one key; its record in memory or not; the slot that says it is on disk; `departed`, the
 * highest operation that left memory, by DELETE or by eviction; the loading that is not over;
 * writes published, applied to the database, marked as written, synced - in this order, each a
 * step; once (FAULTS), a database that fails, is opened again without what was not synced, and gets
 * it again. A reader that loads, twice (GETS), and a warm-up.
 *
 * The whole of it has ten million states: --long. The ordinary search looks at one GET with a fault,
 * and at two GETs without. A rule left out is rejected in the smallest of these that shows it: what
 * goes wrong there goes wrong in the whole.
 *
 * Left out: how records and groups are READ (record.pml, pair.pml, split.pml); crashes; slots of
 * other keys with the same bits, which only cause reads of the disk; expiry.
 *
 * accept GETS=1: one writer, a reader, a warm-up, two operations, a fault
 * accept FAULTS=0: two GETs, no fault
 * accept-long: two GETs and a fault
 * accept-long EVICTIONS=2: two evictions
 * accept-long OPERATIONS=3 FAULTS=0: three operations
 * accept NO_DEPARTED_FOR_MISS FAULTS=0: a miss was right when the disk was read, within the GET
 * reject NO_DEPARTED_FOR_MISS JOINED FAULTS=0: but not if the load had begun before the GET
 * accept JOINED FAULTS=0: loads that have begun may be joined
 * accept EVICT_UNSYNCED FAULTS=0: a load waits for what it needs; but on a disk that fails, long
 * reject NO_DEPARTED_CHECK FAULTS=0: what was read is installed only if nothing has left memory since
 * reject EVICTION_LEAVES_NO_TRACE FAULTS=0: an eviction is noted like a DELETE
 * reject MARK_BEFORE_APPLIED FAULTS=0: the mark rises when the database shows the write
 * reject NO_LOOK_AT_REOPENED: nor if the database was opened again since the mark was read
 * reject REOPENED_LAST: the openings are counted before the mark is read
 * reject WAL_MARK_WHILE_FAILING: while the disk fails the sync mark counts
 * reject EVICTED_WITHOUT_SLOT FAULTS=0: an evicted record leaves a slot that says so
 * reject LOADING_ENDS_EARLY FAULTS=0: the loading is over when everything has been given to the store
 * reject TWO_STREAMS FAULTS=0: one stream applies the writes of a key, in their order
 */

#ifndef OPERATIONS
#define OPERATIONS 2
#endif
#include "monitor.pml"

#ifndef GETS
#define GETS 2
#endif
#ifndef EVICTIONS
#define EVICTIONS 1
#endif
#ifndef FAULTS
#define FAULTS 1
#endif
#define NONE 255
byte memory = NONE; /* the operation whose value is in memory */
bool on_disk;       /* a slot says that the record is there */
bool loading = true;
byte departed;
byte evictions, faults;
bool locked;
byte queued; /* operations 1..queued are in the log */
byte engine; /* the operation that the database shows; 0: what it had at the start */
byte mark, synced;
byte reopened;
bool failing;
byte visits; /* reads under way: the database stays open */
#ifdef TWO_STREAMS
bool overtaken; /* the last two writes went by streams of their own, the later one first */
#define ONE_STREAM !overtaken
#else
#define ONE_STREAM true
#endif

#ifdef EVICT_UNSYNCED
#define EVICTABLE (memory <= mark)
#else
#define EVICTABLE (memory <= synced)
#endif
#ifdef WAL_MARK_WHILE_FAILING
#define WRITTEN mark
#else
#define WRITTEN (failing -> synced : mark)
#endif
#ifdef NO_DEPARTED_CHECK
#define UNCHANGED true
#else
#define UNCHANGED (departed <= as_of)
#endif
#ifdef NO_DEPARTED_FOR_MISS
#define UNCHANGED_MISS true
#else
#define UNCHANGED_MISS (departed <= as_of)
#endif
#ifdef NO_LOOK_AT_REOPENED
#define HOLDS true
#else
#define HOLDS (reopened == opened)
#endif

inline lock_pair() { atomic { !locked -> locked = true } }

proctype writer() {
  do
  :: begun < OPERATIONS && !failing -> /* PUT */
     lock_pair();
     begin_operation(true);
     d_step { memory = begun; on_disk = false }
     queued = begun;
     atomic { acknowledge(); locked = false }
  :: atomic { begun < OPERATIONS && !failing && memory != NONE && !locked -> locked = true }
     /* DELETE; the record was brought into memory for it */
     if
     :: memory == NONE -> locked = false
     :: else ->
        begin_operation(false);
        d_step { memory = NONE; departed = begun }
        queued = begun;
        atomic { acknowledge(); locked = false }
     fi
  :: atomic {
       !locked && memory != NONE && EVICTABLE && evictions < EVICTIONS ->
       evictions++;
#ifndef EVICTION_LEAVES_NO_TRACE
       if
       :: memory > departed -> departed = memory
       :: else
       fi;
#endif
#ifndef EVICTED_WITHOUT_SLOT
       on_disk = true;
#endif
       memory = NONE
     }
  :: begun == OPERATIONS -> break
  od
}

/* The one stream that applies writes in order. */
proctype applier() {
  byte had;
end:
  do
#ifdef TWO_STREAMS
  :: OPERATIONS == 2 && !overtaken && engine == 0 && queued == 2 ->
     overtaken = true;
     engine = 2;
     engine = 1;
     mark = 2 /* both are written */
#endif
  :: ONE_STREAM && engine < queued ->
#ifdef MARK_BEFORE_APPLIED
     mark = engine + 1;
     engine++
#else
     engine++;
     mark = engine
#endif
  :: synced < mark -> synced = mark
  :: faults < FAULTS ->
     faults++;
     failing = true;
     had = engine;
     atomic { visits == 0 -> engine = synced; reopened++ }
     engine = had; /* in one batch */
     synced = had;
     failing = false
  od
}

/* What must be written is; then the database is read as of `as_of`. Under `visits`. */
inline read_disk() {
  byte need;
  need = departed;
  atomic { need <= WRITTEN -> need = 0 }
#ifdef REOPENED_LAST
  as_of = WRITTEN;
  opened = reopened;
#else
  opened = reopened;
  as_of = WRITTEN;
#endif
  atomic { visits++; loaded = engine }
}

/* A GET may join a load that another has asked for, and that has read the disk already. */
inline read_before() {
#ifdef JOINED
  if
  :: atomic { memory == NONE && (on_disk || loading) } read_disk(); joined = true
  :: skip
  fi
#else
  skip
#endif
}

/* Until the end, `key_found` and `loaded` hold the answer. */
inline load() {
  do
  :: atomic { !locked && memory != NONE -> loaded = memory; key_found = true } break
  :: atomic { !locked && memory == NONE && !on_disk && !loading -> key_found = false } break
  :: atomic { !locked && memory == NONE && (on_disk || loading) }
#ifdef JOINED
     if
     :: joined -> joined = false
     :: else -> read_disk()
     fi;
#else
     read_disk();
#endif
     if
     :: present[loaded] ->
        atomic {
          !locked ->
          visits--;
          if
          :: memory == NONE && UNCHANGED && HOLDS -> memory = loaded; on_disk = false
          :: else
          fi;
          loaded = 0
        }
     :: !present[loaded] ->
        visits--;
        if
        :: HOLDS ->
           atomic {
             !locked ->
             if
             :: memory == NONE && UNCHANGED_MISS -> key_found = false; break
             :: else -> loaded = 0
             fi
           }
        :: else -> loaded = 0
        fi
     fi
  od;
#ifdef JOINED
  if
  :: joined -> joined = false; visits--
  :: else
  fi
#else
  skip
#endif
}

proctype warm_up() {
  byte loaded, as_of, opened;
#ifdef LOADING_ENDS_EARLY
  loading = false;
#endif
again:
  read_disk();
  if
  :: present[loaded] ->
     atomic {
       !locked ->
       visits--;
       if
       :: memory != NONE
       :: memory == NONE && UNCHANGED && HOLDS ->
          if
          :: memory = loaded; on_disk = false
          :: on_disk = true /* no room: noted in the index alone */
          fi
       :: else -> loaded = 0; goto again
       fi
     }
  :: !present[loaded] ->
     visits--;
     if
     :: HOLDS
     :: else -> loaded = 0; goto again
     fi
  fi;
  loading = false
}

proctype reader() {
  byte gets, loaded, as_of, opened;
  bool key_found, joined;
next:
  read_before();
  get_called();
  load();
  atomic {
    if
    :: key_found -> get_found(loaded)
    :: !key_found -> get_missed()
    fi;
    loaded = 0; key_found = false; as_of = 0; opened = 0;
    gets++;
    if
    :: gets < GETS -> goto next
    :: else
    fi
  }
}

init {
  atomic {
    if
    :: present[0] = true
    :: skip
    fi;
    run writer();
    run applier();
    run warm_up();
    run reader()
  }
}
