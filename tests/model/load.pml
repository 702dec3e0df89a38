/* Loading from disk against a writer.
 *
 * Mirrors the rules for everything that reads the engine (design: persistence): a two-sided GET of a
 * spilled key and the warm-up after a restart. Both read without the pair's lock.
 *
 * Modelled: one key; its record in memory or not; spilled; the group's change counter; writes that
 * are published, queued, applied to the engine, dropped from the overlay - in this order, each a
 * step; eviction; a neighbour key that is evicted; a split, after which the key's home is a new group.
 * A reader (twice) and a warm-up that load: note the counter under the lock, look into the overlay,
 * then into the engine, and under the lock again install, clear spilled and answer.
 *
 * Left out: how records and groups are READ (record.pml, pair.pml, split.pml); crashes.
 *
 * accept: one writer, a reader, a warm-up, two operations
 * accept-long OPERATIONS=3: three operations
 * accept EVICT_PENDING: eviction of what is not applied yet would be right: the overlay has it
 * accept SPLIT_KEEPS_COUNTER: it may be the old one's, as long as it does not start anew
 * reject NO_OVERLAY: every read of the engine goes through the writes not yet applied
 * reject ENGINE_BEFORE_OVERLAY: the overlay is looked at before the engine
 * reject DROPPED_BEFORE_APPLIED: a write leaves the overlay when the engine has it
 * reject NO_COUNTER_NOTED: install and answer only if the change counter has not moved
 * reject NO_COUNTER_FOR_MISS: that goes for the answer that the key is not there too
 * reject SPLIT_RESTARTS_COUNTER: a new group goes on with the old one's counter
 * reject TWO_STREAMS: one ordered apply stream for a key
 */

#ifndef OPERATIONS
#define OPERATIONS 2
#endif
#include "monitor.pml"

#ifndef EVICTIONS
#define EVICTIONS 2
#endif
#define NONE 255
byte memory = NONE; /* the operation whose value is in memory */
bool spilled = true;
byte counter = 1;
byte evictions;
bool locked, was_split;
byte queued;                  /* operations 1..queued are in the log */
byte engine;                  /* the operation that the engine shows; 0: what it had at the start */
bool dropped[OPERATIONS + 1]; /* from the overlay */

#ifdef NO_OVERLAY
#define PENDING false
#else
#define PENDING (queued != 0 && !dropped[queued])
#endif
#ifdef NO_COUNTER_NOTED
#define UNMOVED(found) true
#elif defined(NO_COUNTER_FOR_MISS)
#define UNMOVED(found) (!(found) || counter == noted)
#else
#define UNMOVED(found) (counter == noted)
#endif

#ifdef EVICT_PENDING
#define EVICTABLE true
#else
#define EVICTABLE (engine == memory && (queued == 0 || dropped[queued]))
#endif

inline lock_pair() { atomic { !locked -> locked = true } }

proctype writer() {
  do
  :: begun < OPERATIONS -> /* PUT */
     lock_pair();
     begin_operation(true);
     d_step { memory = begun; counter++ }
     queued = begun;
     atomic { acknowledge(); locked = false }
  :: begun < OPERATIONS -> /* DELETE; the server has seen that there is something */
     lock_pair();
     begin_operation(false);
     d_step { memory = NONE; counter++ }
     queued = begun;
     atomic { acknowledge(); locked = false }
  :: atomic { /* evicted: what is applied and has nothing pending */
       !locked && memory != NONE && EVICTABLE && evictions < EVICTIONS ->
       evictions++; memory = NONE; spilled = true; counter++
     }
  :: atomic { /* a neighbour key is evicted */
       !locked && !spilled && evictions < EVICTIONS -> evictions++; spilled = true; counter++
     }
  :: atomic {
       !locked && !was_split -> was_split = true;
#if defined(SPLIT_RESTARTS_COUNTER)
       counter = 1
#elif defined(SPLIT_KEEPS_COUNTER)
       skip
#else
       counter++
#endif
     }
  :: begun == OPERATIONS -> break
  od
}

inline apply(operation) {
#ifdef DROPPED_BEFORE_APPLIED
  dropped[operation] = true;
  engine = operation;
#else
  engine = operation;
  dropped[operation] = true;
#endif
}

/* The stream that applies writes in order. */
proctype apply_stream() {
  byte i;
end:
  do
  :: atomic { i < queued -> i++ }
     apply(i)
#ifdef TWO_STREAMS
  :: atomic { i == 0 && queued >= 2 -> i = 2 } /* the other stream is ahead */
     apply(2); apply(1)
#endif
  od
}

/* Until the end, `key_found` and `loaded` hold the answer. */
inline load() {
  do
  :: atomic { !locked && memory != NONE -> loaded = memory; key_found = true; noted = 0 } break
  :: atomic { !locked && memory == NONE -> noted = counter }
#ifdef ENGINE_BEFORE_OVERLAY
     loaded = engine;
     if
     :: PENDING -> loaded = queued
     :: !PENDING
     fi;
#else
     if
     :: atomic { PENDING -> loaded = queued }
     :: !PENDING -> loaded = engine
     fi;
#endif
     atomic {
       !locked ->
       key_found = present[loaded];
       if
       :: UNMOVED(key_found) ->
          noted = 0; spilled = false; counter++;
          if
          :: key_found -> memory = loaded
          :: !key_found
          fi;
          break
       :: else -> noted = 0; loaded = 0; key_found = false
       fi
     }
  od
}

proctype warm_up() {
  byte noted, loaded;
  bool key_found;
  load()
}

proctype reader() {
  byte gets, noted, loaded;
  bool key_found;
next:
  get_called();
  if
  :: atomic { memory != NONE -> get_found(memory) }
  :: atomic { memory == NONE && !spilled -> get_missed() }
  :: memory == NONE && spilled ->
     load();
     atomic {
       if
       :: key_found -> get_found(loaded)
       :: !key_found -> get_missed()
       fi
     }
  fi;
  atomic {
    loaded = 0; key_found = false;
    gets++;
    if
    :: gets < 2 -> goto next
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
    dropped[0] = true;
    run writer();
    run apply_stream();
    run warm_up();
    run reader()
  }
}
