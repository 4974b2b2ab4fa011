# steps.sh: sourced by setup, quickstart and check: one line a step with the time it took, the reason when one
# fails. Output of a step goes to a log file, of which the end is shown on failure.

steps_logs=
step_pid=

# How many processors there are to use. nproc alone takes OMP_NUM_THREADS for it, which is how many threads a
# rank is to have.
processors() { env -u OMP_NUM_THREADS -u OMP_THREAD_LIMIT nproc; }

# A directory for logs, made on first use and kept: build/logs/<program>.
steps_log_directory() {
  if [ -z "$steps_logs" ]; then
    steps_logs=$root/build/logs/$(basename "$0")
    mkdir -p "$steps_logs"
  fi
}

# Sets processor_s to the seconds of processor time of all commands that this shell has waited for. Not
# printed: a subshell, as of $(...), has waited for none.
measure_processors() {
  local file=$steps_logs/times.$BASHPID  # a subshell may run steps at the same time
  times >"$file"
  processor_s=$(awk -F '[ms ]+' 'NR == 2 { print int($1 * 60 + $2 + $3 * 60 + $4) }' "$file")
  rm -f "$file"
}

say() { printf '%s\n' "$*"; }
fail() {
  printf '%s: %s\n' "$(basename "$0")" "$*" >&2
  exit 1
}

# try_step "what is done" command...: runs it without input; prints one line, with the seconds that it took
# and those of the processors; returns the command's exit code.
try_step() {
  local what=$1 log start processors_before code=0
  shift
  steps_log_directory
  log=$steps_logs/$(printf '%s' "$what" | tr -cs 'A-Za-z0-9' '-' | sed 's/-*$//').log
  start=$SECONDS
  measure_processors
  processors_before=$processor_s
  # In the background, so that a signal to this script is handled at once, and in a process group of its own,
  # so that steps_end reaches all of it.
  set -m
  "$@" >"$log" 2>&1 </dev/null &
  step_pid=$!
  set +m
  wait "$step_pid" || code=$?
  step_pid=
  measure_processors
  if [ "$code" -eq 0 ]; then
    printf '%-48s ok      %4d s (%d)\n' "$what" $((SECONDS - start)) $((processor_s - processors_before))
  else
    printf '%-48s FAILED  %4d s (%d)\n' "$what" $((SECONDS - start)) $((processor_s - processors_before))
    printf -- '--- last lines of %s (exit code %d)\n' "$log" "$code" >&2
    tail -n 40 "$log" >&2
    printf -- '---\n' >&2
  fi
  return "$code"
}

# Ends the step under way, if there is one, with all its processes. For EXIT traps.
steps_end() {
  [ -z "$step_pid" ] || kill -TERM -- "-$step_pid" 2>/dev/null || true
  step_pid=
}

# step "what is done" command...: as try_step, and ends the script on failure.
step() {
  try_step "$@" || fail "'$1' failed; the reason is above"
}
