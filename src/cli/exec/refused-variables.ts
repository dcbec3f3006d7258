/**
 * Variables that a secret must not set: those by which the loader, shells, interpreters and build tools choose what code they run, and
 * those that name a command or a directory of configuration with commands in it. Who may write a secret must not choose what runs.
 *
 * Names come in upper case. Those of one program are of its documentation; the C library's are those that the loader ignores for
 * programs with more rights than their caller (`ld.so(8)`). docs/security.md says what is promised.
 */

const LOADER = [
  'LD_.*',
  'DYLD_.*',
  'GCONV_PATH',
  'GETCONF_DIR',
  'GLIBC_TUNABLES',
  'HOSTALIASES',
  'LOCALDOMAIN',
  'LOCPATH',
  'MALLOC_.*',
  'NIS_PATH',
  'NLSPATH',
  'RESOLV_HOST_CONF',
  'RES_OPTIONS',
  'TMPDIR',
  'TZDIR',
]
const SHELLS = [
  'PATH|CDPATH|FPATH|MANPATH|IFS|ENV|SHELL|SHELLOPTS|PS[0-4]|PROMPT_COMMAND|ZDOTDIR|INPUTRC|HISTFILE',
  'BASH.*',
]
/** Where configuration is looked for that names commands. */
const HOMES = [
  'HOME|USERPROFILE|APPDATA|LOCALAPPDATA|XDG_.*',
  'AWS_CONFIG_FILE|AWS_SHARED_CREDENTIALS_FILE|KUBECONFIG|DOCKER_CONFIG|GNUPGHOME|CURL_HOME|WGETRC|NETRC',
  'PSQLRC|PGSERVICEFILE|PGSYSCONFDIR|MYSQL_HOME|HGRCPATH|TERMINFO(?:_DIRS)?|TERMCAP',
]
const COMMANDS = [
  '(?:.*_)?(?:ASKPASS|BROWSER|PAGER|EDITOR|VISUAL)|MANPAGER|HGEDITOR|FCEDIT|SUDO_.*|SYSTEMD_LESS',
  'LESS(?:OPEN|CLOSE|EDIT|KEY.*)?|TAR_OPTIONS|GIT_.*|CVS_RSH|RSYNC_(?:RSH|CONNECT_PROG)|SVN_(?:SSH|EDITOR)|SSH_(?:ASKPASS|SK).*',
  'EXINIT|MYVIMRC|N?VIM(?:INIT|RUNTIME|_.*)?|EMACS.*|AWK(?:LIB)?PATH|ANSIBLE_.*|TF_(?:CLI|PLUGIN).*',
]
const INTERPRETERS = [
  'NODE_(?:OPTIONS|PATH|REPL_.*|ICU_DATA|V8_COVERAGE|COMPILE_CACHE|REDIRECT_WARNINGS)|TS_NODE_.*|ELECTRON_.*',
  'P?NPM_CONFIG_.*|PNPM_HOME|YARN_(?!NPM_AUTH_).*|COREPACK_.*|NVM_.*|BUN_.*|DENO_(?!AUTH_TOKENS).*',
  'PYTHON.*|I?PYTHONDIR|JUPYTER_.*PATH|PIP_.*|PIPENV_.*|UV_.*|CONDA_.*|VIRTUAL_ENV|POETRY_(?!HTTP_BASIC_|PYPI_TOKEN_).*',
  'PERL.*|RUBY.*|GEM_(?!HOST_API_KEY).*|BUNDLER?_.*|RBENV_.*|RAKEOPT|IRBRC|LUA_.*|LUAROCKS_.*',
  'PHP_.*|PHPRC|COMPOSER(?!_AUTH$).*|TCL(?:LIBPATH|_LIBRARY)|GUILE_.*|JULIA_.*|R_(?:HOME|LIBS.*|PROFILE.*|ENVIRON.*)|O?CAML.*|GHC(?:RTS|_.*)',
  'JAVA_(?:HOME|TOOL_OPTIONS|OPTIONS)|JDK_.*|_JAVA_.*|CLASSPATH|(?:MAVEN|MVN|M2|GRADLE|SBT|ANT|CATALINA|GROOVY)_.*',
  'DOTNET_.*|COR(?:ECLR)?_(?:PROFILER|ENABLE).*|COMPLUS_.*|MSBUILD.*|ERL_.*|ELIXIR_.*|MIX_.*|REBAR_.*',
]
const BUILD_TOOLS = [
  // What start scripts of the Java world give to their program, and what compilers are called with.
  '.*_OPTS|JVM_ARGS|(?:.*_)?[A-Z]+FLAGS',
  'MAKE|MAKEFILES|CC|CXX|CPP|LD|AR|CMAKE_.*|PKG_CONFIG.*|CCACHE_.*|NIX_.*',
  'RUST(?:C|DOC|UP)(?:_.*)?|CARGO(?:_(?!REGISTRY_TOKEN$|REGISTRIES_[A-Z0-9_]+_TOKEN$).*)?',
  'GO(?:PATH|ROOT|BIN|ENV|PROXY|TOOLCHAIN|TOOLDIR|WORK|(?:NO)?SUMDB|NOSUMCHECK|INSECURE|PRIVATE|VCS|AUTH|CACHEPROG)',
]
const LIBRARIES = [
  'OPENSSL_(?:CONF|ENGINES|MODULES)|GTK.*_(?:MODULES|PATH)|GIO_.*|GST_(?:PLUGIN|REGISTRY).*|QT_.*|QML2?_.*|DBUS_.*',
]

const REFUSED = new RegExp(
  `^(?:${[LOADER, SHELLS, HOMES, COMMANDS, INTERPRETERS, BUILD_TOOLS, LIBRARIES].flat().join('|')})$`,
)

/** `name` is in upper case. */
export function decidesWhatRuns(name: string): boolean {
  return REFUSED.test(name)
}
