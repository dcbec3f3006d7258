/** The completion script for zsh. */
import { type Completes, listed, type Place, quoted, valuesByKind } from './tree.ts'

/** To be loaded in the shell, or stored as `_outpost` in a directory of `fpath`. */
export function zshCompletion(places: readonly Place[]): string {
  return `#compdef outpost
# Completion of outpost for zsh. Load it with: source <(outpost completion zsh)
_outpost() {
  local place='' next='' before=\${words[CURRENT - 1]} index
  local -a found
  for ((index = 2; index < CURRENT; index++)); do
    next="\${place:+$place }\${words[index]}"
    case $next in
      (${places
        .filter(({ words }) => words !== '')
        .map(({ words }) => quoted(words))
        .join(' | ')}) place=$next ;;
      (*) break ;;
    esac
  done
  [[ $before != --?* ]] || before=\${before#-}
  case "$place $before" in
${values(places)}  esac
  if [[ \${words[CURRENT]} == -* ]]; then
    case $place in
${options(places)}    esac
    _describe -o option found
    return
  fi
  case $place in
${operands(places)}  esac
}
if [[ $funcstack[1] == _outpost ]]; then _outpost "$@"; else compdef _outpost outpost; fi
`
}

function values(places: readonly Place[]): string {
  return valuesByKind(places)
    .map(({ patterns, value }) => `    (${patterns}) ${reply(value)}; return ;;\n`)
    .join('')
}

function options(places: readonly Place[]): string {
  return places
    .filter((place) => place.options.length > 0)
    .map((place) => {
      const all = place.options.map(({ name, help }) => described(`-${name}`, help))
      return `      (${quoted(place.words)}) found=(${all.join(' ')}) ;;\n`
    })
    .join('')
}

function operands(places: readonly Place[]): string {
  return places
    .map(({ words, next, operand }) => {
      if (next.length > 0) {
        const all = next.map(({ word, help }) => described(word, help))
        return `    (${quoted(words)}) found=(${all.join(' ')}); _describe command found ;;\n`
      }
      return operand === 'nothing' ? '' : `    (${quoted(words)}) ${reply(operand)} ;;\n`
    })
    .join('')
}

/** `word:what it is`, where a colon in the word would end it. */
function described(word: string, help: string): string {
  return quoted(`${word.replaceAll(':', String.raw`\:`)}:${help}`)
}

function reply(completes: Completes): string {
  if (completes === 'nothing') return ':'
  return completes === 'files' ? '_files' : `compadd -- ${listed(completes)}`
}
