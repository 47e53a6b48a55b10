# Sourced, not run. Builds programs where that is needed, and starts one of them.
#
#   nccl4j_java PROGRAM MAIN_CLASS [arguments]      PROGRAM is one of nccl4j_programs, a folder of the checkout
#   nccl4j_alone PROGRAM [FOLDERS]                  builds from here on this one alone: what it needs is large, and the
#                                                   others are to do without; FOLDERS are projects that it is built from
#   nccl4j_ready                                    builds where that is needed; sets nccl4j_home (Java's) and nccl4j_folder,
#                                                   which has a folder of jars for each program
#
# What is started lies in target/run (or run-NAME, for examples/NAME), a link to a folder of its own for each build: a program
# that is running keeps its jars when another terminal builds new ones. Nothing is written outside the checkout's target
# folders (and Maven's own cache). In a bundle (scripts/bundle) everything is built and nothing is written.

nccl4j_root=$(readlink -f "${BASH_SOURCE[0]}")
nccl4j_root=${nccl4j_root%/scripts/lib/java.sh}
nccl4j_target=$nccl4j_root/target
nccl4j_run=$nccl4j_target/run
nccl4j_programs=(tools examples/hello examples/bandwidth)
nccl4j_projects=()

# Java names files in the characters of the locale, and a bare environment's has but ASCII.
if [[ -z ${LC_ALL-}${LC_CTYPE-}${LANG-} ]]; then export LC_CTYPE=C.UTF-8; fi

nccl4j_die() {
  echo "${0##*/}: $*" >&2
  exit 1
}

nccl4j_alone() {
  nccl4j_programs=("$1")
  nccl4j_run=$nccl4j_target/run-${1##*/}
  nccl4j_projects=("$nccl4j_root/tools" "${@:2}")
}

# Says whether something is newer than what was built. Folders count too: a file that is deleted changes its folder.
nccl4j_stale() {
  local home
  { read -r home <"$nccl4j_run/java-home"; } 2>/dev/null && [[ -x $home/bin/java ]] || return 0
  local sources=("${nccl4j_programs[@]/#/$nccl4j_root/}" "${nccl4j_projects[@]}")
  [[ -n $(find "$nccl4j_root/pom.xml" "$nccl4j_root/bindings" "$nccl4j_root/src/main" "$nccl4j_root/parent/pom.xml" \
    "${sources[@]/%//pom.xml}" "${sources[@]/%//src/main}" -newer "$nccl4j_run/java-home" -print -quit) ]]
}

nccl4j_build() {
  command -v mvn >/dev/null || nccl4j_die 'Maven is not on the PATH; install it (Debian: apt install maven) to build nccl4j'
  local log=$nccl4j_target/build.log fresh nccl4j_status=0
  fresh=$(mktemp -d "$nccl4j_run.XXXXXX")
  # A recording that is asked for is to be of the program, not one more of each Java that builds it, beside its sources.
  local options flag=-XX:StartFlightRecording rest="([^[:space:]\"']|\"[^\"]*\"|'[^']*')*"
  for options in JAVA_TOOL_OPTIONS JDK_JAVA_OPTIONS; do
    if [[ ${!options-} == *"$flag"* ]]; then
      local -x "$options=$(sed -E "s/(\"$flag[^\"]*\"|'$flag[^']*'|$flag)$rest//g" <<<"${!options}")"
    fi
  done
  # Made now, so that what is edited during the build counts as newer.
  : >"$fresh/started"
  echo "building nccl4j (about a minute, and longer where Maven downloads) ..." >&2
  local projects=("${nccl4j_programs[@]/#/../}")
  mvn --batch-mode --file "$nccl4j_root/parent/pom.xml" --projects "$(IFS=,; echo "${projects[*]}")" --also-make \
    -Dmaven.test.skip=true -Dspotless.check.skip=true package >"$log" 2>&1 || nccl4j_status=$?
  if [[ $nccl4j_status != 0 ]]; then
    rm -rf "$fresh"
    nccl4j_end_if_interrupted
    grep -q 'Cannot find matching toolchain\|No toolchain found\|No toolchain matched' "$log" &&
      nccl4j_die 'no JDK 25 or later is on this machine; install one (Debian: apt install openjdk-25-jdk, or https://adoptium.net), or say where it is in ~/.m2/toolchains.xml'
    tail -n 40 "$log" >&2
    nccl4j_die "the build failed; the end of its output is above, all of it in $log"
  fi
  local name
  for name in "${nccl4j_programs[@]}"; do
    mkdir "$fresh/${name##*/}"
    cp "$nccl4j_root/$name/target/modules"/*.jar "$nccl4j_root/$name/target"/*.jar "$fresh/${name##*/}/"
  done
  sed -n 's/^ *java\.home = //p' "$nccl4j_target/java-settings" >"$fresh/java-home"
  if [[ -d $fresh/tools ]]; then nccl4j_rehearse "$fresh"; fi
  touch -r "$fresh/started" "$fresh/java-home"
  ln -sfn "${fresh##*/}" "$nccl4j_run.link"
  mv -T "$nccl4j_run.link" "$nccl4j_run"
  # Programs of earlier builds may still be running.
  find "$nccl4j_target" -maxdepth 1 -name "${nccl4j_run##*/}.??????" ! -path "$fresh" -mmin +60 -exec rm -rf {} +
}

# Maven and Java end an interrupt themselves, with a status that says so, and Bash goes on.
nccl4j_end_if_interrupted() {
  if ((nccl4j_status > 128)); then exit "$nccl4j_status"; fi
}

# A first run whose loaded classes and profiles later runs start with. Without it they only start more slowly.
nccl4j_rehearse() {
  local home
  read -r home <"$1/java-home"
  # The paths must be those of later runs, or Java refuses the cache.
  nccl4j_flags "${1##*/}" tools
  "$home/bin/java" -XX:AOTCacheOutput="$1/tools.aot" "${nccl4j_flags[@]}" io.nccl4j.tools.perf.Perf \
    all_reduce --backend reference --ranks 2 -b 8 -e 4M -f 2 >>"$nccl4j_target/build.log" 2>&1 || nccl4j_status=$?
  if [[ $nccl4j_status != 0 ]]; then
    rm -f "$1/tools.aot"
    nccl4j_end_if_interrupted
  fi
}

# Sets nccl4j_flags to what Java is started with: a short start-up and few threads of its own, since the ranks are threads
# that want the processors.
nccl4j_flags() {
  nccl4j_flags=(
    # JDK 25 warns on stdout of parts of its own cache that it then does without. A recording that is asked for does
    # without the cache, and the errors about that are left out too.
    -Xlog:disable -Xlog:all=error:stderr -Xlog:aot=off:stderr
    -XX:+UseSerialGC
    --enable-native-access=ALL-UNNAMED
    -cp "$nccl4j_target/$1/$2/*"
  )
}

# In a bundle the Java is its own, all programs share one class path, and log4j's simple logger shows warnings.
nccl4j_in_bundle() {
  [[ -x $nccl4j_root/runtime/bin/java ]]
}

nccl4j_java_of_bundle() {
  local main=$2
  shift 2
  export CLASSPATH="$nccl4j_root/lib/*"
  exec "$nccl4j_root/runtime/bin/java" -Xlog:disable -Xlog:all=error:stderr -XX:+UseSerialGC \
    -Dlog4j.provider=org.apache.logging.log4j.simple.internal.SimpleProvider -Dlog4j2.simplelogLevel=WARN \
    --enable-native-access=ALL-UNNAMED "$main" "$@"
}

nccl4j_ready() {
  if nccl4j_stale; then
    mkdir -p "$nccl4j_target"
    exec {lock}>"$nccl4j_target/run.lock"
    flock "$lock"
    # Another terminal may have built it meanwhile. The shell of its own ends with what fails.
    if nccl4j_stale; then nccl4j_build; fi
    exec {lock}>&-
  fi
  read -r nccl4j_home <"$nccl4j_run/java-home"
  nccl4j_folder=$nccl4j_target/$(readlink "$nccl4j_run")
}

nccl4j_java() {
  if nccl4j_in_bundle; then nccl4j_java_of_bundle "$@"; fi
  local name=${1##*/} main=$2
  shift 2
  nccl4j_ready
  nccl4j_flags "${nccl4j_folder##*/}" "$name"
  [[ -e $nccl4j_folder/$name.aot ]] && nccl4j_flags=(-XX:AOTCache="$nccl4j_folder/$name.aot" "${nccl4j_flags[@]}")
  # Large buffers of the reference backend get huge pages where Linux leaves that to the program.
  export GLIBC_TUNABLES=${GLIBC_TUNABLES-glibc.malloc.hugetlb=1}
  exec "$nccl4j_home/bin/java" "${nccl4j_flags[@]}" "$main" "$@"
}
