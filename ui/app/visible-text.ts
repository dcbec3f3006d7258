/**
 * All text of the page passes here: characters that have no shape, or that change the order of others, are shown as `\u{202e}`. So a name
 * that a task, a host or another user chose cannot look like another name. Views need not do this for each name.
 */
import { options, type VNode } from 'preact'
import { visibleLines } from './invisible-characters.ts'

/** Attributes that a browser shows or reads aloud. */
const SHOWN_ATTRIBUTES = ['title', 'aria-label', 'alt', 'placeholder']
const PLAIN = /^[\n\t\x20-\x7e]*$/

function shown(text: string): string {
  return PLAIN.test(text) ? text : visibleLines(text)
}

export function showInvisibleCharacters(): void {
  const before = options.vnode?.bind(options)
  options.vnode = (vnode) => {
    makeVisible(vnode)
    before?.(vnode)
  }
}

/** Preact creates a node without a type for each text; its properties are the text. */
function makeVisible(vnode: VNode): void {
  const { type } = vnode as { readonly type: unknown }
  const { props } = vnode as { readonly props: unknown }
  if (typeof props === 'string') Reflect.set(vnode, 'props', shown(props))
  else if (typeof type === 'string' && typeof props === 'object' && props !== null) {
    for (const name of SHOWN_ATTRIBUTES) {
      const value: unknown = Reflect.get(props, name)
      if (typeof value === 'string') Reflect.set(props, name, shown(value))
    }
  }
}
