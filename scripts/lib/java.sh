# Sourced, not run. Builds a program if needed, and starts it.
#
#   nccl4j_java PROGRAM MAIN_CLASS [arguments]      PROGRAM is a folder of the checkout, such as tools
#   nccl4j_ready PROGRAM [FOLDERS]                  builds if needed; sets nccl4j_home (Java's) and nccl4j_folder, with the
#                                                   jars; FOLDERS are other projects that the program is built from
#
# A program is started from target/run-NAME, a link to a separate folder for each build, so that a running program keeps its
# jars when another terminal builds new ones. Nothing is written outside the checkout's target folders and Maven's cache. In
# a bundle (scripts/bundle) everything is built and nothing is written.

nccl4j_root=$(readlink -f "${BASH_SOURCE[0]}")
nccl4j_root=${nccl4j_root%/scripts/lib/java.sh}
nccl4j_target=$nccl4j_root/target

# Java encodes file names by the locale; without one it only has ASCII.
if [[ -z ${LC_ALL-}${LC_CTYPE-}${LANG-} ]]; then export LC_CTYPE=C.UTF-8; fi

nccl4j_die() {
  echo "${0##*/}: $*" >&2
  exit 1
}

# Whether a source is newer than the build. Includes folders: a deleted file changes its folder.
nccl4j_stale() {
  local home
  { read -r home <"$nccl4j_run/java-home"; } 2>/dev/null && [[ -x $home/bin/java ]] || return 0
  local sources=("${nccl4j_projects[@]/#/$nccl4j_root/}")
  [[ -n $(find "$nccl4j_root/pom.xml" "$nccl4j_root/bindings" "$nccl4j_root/src/main" "$nccl4j_root/parent/pom.xml" \
    "${sources[@]/%//pom.xml}" "${sources[@]/%//src/main}" -newer "$nccl4j_run/java-home" -print -quit) ]]
}

nccl4j_build() {
  command -v mvn >/dev/null || nccl4j_die 'Maven is not on the PATH; install it (Debian: apt install maven) to build nccl4j'
  local log=$nccl4j_target/build.log fresh nccl4j_status=0
  fresh=$(mktemp -d "$nccl4j_run.XXXXXX")
  # mktemp leaves others no access, whatever the umask is; they would build again.
  chmod +rx "$fresh"
  # A requested flight recording must be of the program, not of each Java process of the build.
  local options flag=-XX:StartFlightRecording rest="([^[:space:]\"']|\"[^\"]*\"|'[^']*')*"
  for options in JAVA_TOOL_OPTIONS JDK_JAVA_OPTIONS; do
    if [[ ${!options-} == *"$flag"* ]]; then
      local -x "$options=$(sed -E "s/(\"$flag[^\"]*\"|'$flag[^']*'|$flag)$rest//g" <<<"${!options}")"
    fi
  done
  # Created now, so that files edited during the build count as newer.
  : >"$fresh/started"
  echo "building nccl4j (about a minute, longer if Maven downloads) ..." >&2
  mvn --batch-mode --file "$nccl4j_root/parent/pom.xml" --projects "../$nccl4j_program" --also-make \
    -Dmaven.test.skip=true -Dspotless.check.skip=true package 2>&1 | nccl4j_progress "$log" || nccl4j_status=$?
  if [[ $nccl4j_status != 0 ]]; then
    rm -rf "$fresh"
    nccl4j_end_if_interrupted
    grep -q 'Cannot find matching toolchain\|No toolchain found\|No toolchain matched' "$log" &&
      nccl4j_die 'no JDK 25 or later was found; install one (Debian: apt install openjdk-25-jdk, or https://adoptium.net), or name it in ~/.m2/toolchains.xml'
    tail -n 40 "$log" >&2
    nccl4j_die "the build failed; the end of its output is above, the full output is in $log"
  fi
  # scripts/test checks what this has compiled.
  : >"$nccl4j_target/unchecked"
  cp "$nccl4j_root/$nccl4j_program/target/modules"/*.jar "$nccl4j_root/$nccl4j_program/target"/*.jar "$fresh/"
  rm -f "$fresh"/*-{sources,javadoc,all}.jar
  sed -n 's/^ *java\.home = //p' "$nccl4j_target/java-settings" >"$fresh/java-home"
  if [[ $nccl4j_program == tools ]]; then nccl4j_train_cache "$fresh"; fi
  touch -r "$fresh/started" "$fresh/java-home"
  ln -sfn "${fresh##*/}" "$nccl4j_run.link"
  mv -T "$nccl4j_run.link" "$nccl4j_run"
  # Programs of earlier builds may still be running.
  find "$nccl4j_target" -maxdepth 1 -name "${nccl4j_run##*/}.??????" ! -path "$fresh" -mmin +60 -exec rm -rf {} +
}

# Writes Maven's output to a file, and to stderr a line for each artifact.
nccl4j_progress() {
  tee "$1" | sed --unbuffered --quiet 's|^\[INFO\] Building \(.*[^ ]\) *\[\(.*\)\]$|  \2 \1|p' >&2
}

# Maven and Java exit with a status above 128 when interrupted, but Bash continues.
nccl4j_end_if_interrupted() {
  if ((nccl4j_status > 128)); then exit "$nccl4j_status"; fi
}

# Runs the tool once to create a cache of loaded classes and profiles for later runs, which start more slowly without it.
nccl4j_train_cache() {
  local home
  read -r home <"$1/java-home"
  # Java refuses the cache unless the paths are those of later runs.
  nccl4j_flags "$1"
  "$home/bin/java" -XX:AOTCacheOutput="$1/tools.aot" "${nccl4j_flags[@]}" io.nccl4j.tools.Nccl4j \
    perf all_reduce --backend reference --ranks 2 -b 8 -e 4M -f 2 >>"$nccl4j_target/build.log" 2>&1 || nccl4j_status=$?
  if [[ $nccl4j_status != 0 ]]; then
    rm -f "$1/tools.aot"
    nccl4j_end_if_interrupted
  fi
}

# Sets nccl4j_flags to Java's options: for a short start-up, and few JVM threads, since the ranks are threads that need the
# processors.
nccl4j_flags() {
  nccl4j_flags=(
    # JDK 25 prints warnings about unusable parts of its own cache to stdout. A flight recording disables the cache; the
    # errors about that are suppressed too.
    -Xlog:disable -Xlog:all=error:stderr -Xlog:aot=off:stderr
    -XX:+UseSerialGC
    --enable-native-access=ALL-UNNAMED
    -cp "$1/*"
  )
}

# A bundle has its own Java, one class path for all programs, and log4j's simple logger for warnings.
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

# Prints the version and commit.
nccl4j_version() {
  if [[ -e $nccl4j_root/BUILD ]]; then
    echo "nccl4j $(head -n 1 "$nccl4j_root/BUILD")"
  else
    local commit
    commit=$(git -C "$nccl4j_root" rev-parse --short=12 HEAD 2>/dev/null) || commit=unknown
    echo "nccl4j $(sed -n 's|^    <version>\(.*\)</version>|\1|p' "$nccl4j_root/pom.xml" | head -n 1), commit $commit"
  fi
}

nccl4j_ready() {
  nccl4j_program=$1
  nccl4j_projects=(reference "$@")
  nccl4j_run=$nccl4j_target/run-${1##*/}
  if nccl4j_stale; then
    mkdir -p "$nccl4j_target" && [[ -w $nccl4j_target && (! -e $nccl4j_target/run.lock || -w $nccl4j_target/run.lock) ]] ||
      nccl4j_die "nccl4j must be built, but you cannot write to $nccl4j_target; ask its owner to run this command once"
    exec {lock}>"$nccl4j_target/run.lock"
    flock "$lock"
    # Another terminal may have built it meanwhile.
    if nccl4j_stale; then nccl4j_build; fi
    exec {lock}>&-
  fi
  read -r nccl4j_home <"$nccl4j_run/java-home"
  nccl4j_folder=$nccl4j_target/$(readlink "$nccl4j_run")
}

nccl4j_java() {
  if nccl4j_in_bundle; then nccl4j_java_of_bundle "$@"; fi
  nccl4j_ready "$1"
  local main=$2
  shift 2
  nccl4j_flags "$nccl4j_folder"
  [[ -e $nccl4j_folder/tools.aot ]] && nccl4j_flags=(-XX:AOTCache="$nccl4j_folder/tools.aot" "${nccl4j_flags[@]}")
  # Huge pages for large buffers of the reference backend, if Linux leaves the choice to the program.
  export GLIBC_TUNABLES=${GLIBC_TUNABLES-glibc.malloc.hugetlb=1}
  exec "$nccl4j_home/bin/java" "${nccl4j_flags[@]}" "$main" "$@"
}
