/** The address of a view. Each view has a path below `/ui`, so it can be linked, reloaded and opened in another tab. */
import { computed, signal } from '@preact/signals'

export const UI_ROOT = '/ui'

interface Address {
  /** Path below `/ui`, without a slash at its end; the first view is `/`. */
  readonly path: string
  /** Whether the path ends with a slash, as that of a folder of secrets. */
  readonly isFolder: boolean
  readonly query: URLSearchParams
  /** Without `#`. */
  readonly fragment: string
}

function currentAddress(): Address {
  const { hash, pathname, search } = window.location
  const whole = pathname.slice(UI_ROOT.length)
  const path = whole.replace(/\/+$/, '')
  return {
    path: path === '' ? '/' : path,
    isFolder: path !== '' && path !== whole,
    query: new URLSearchParams(search),
    fragment: hash.slice(1),
  }
}

export const address = signal<Address>(currentAddress())
export const path = computed(() => address.value.path)

/** Called before another view is opened. Returns false to stay; `proceed` opens the view later. */
export type LeaveGuard = (proceed: () => void) => boolean

let leaveGuard: LeaveGuard | undefined

/** Sets the guard of a view with unsaved changes; undefined removes it. */
export function setLeaveGuard(guard: LeaveGuard | undefined): void {
  leaveGuard = guard
}

function hrefOf({ fragment, isFolder, path: current, query }: Address): string {
  const text = query.toString()
  return `${UI_ROOT}${current}${isFolder ? '/' : ''}${text === '' ? '' : `?${text}`}${fragment === '' ? '' : `#${fragment}`}`
}

window.addEventListener('popstate', () => {
  const target = currentAddress()
  const isAllowed = leaveGuard?.(() => navigate(hrefOf(target).slice(UI_ROOT.length))) ?? true
  if (isAllowed) address.value = target
  // The browser has changed the address already.
  else window.history.pushState(null, '', hrefOf(address.value))
})

/** Opens the view with this path, with an optional query. `replace` keeps the browser's history as it is. */
export function navigate(to: string, options: { readonly replace?: boolean } = {}): void {
  const url = UI_ROOT + to
  if (!options.replace && leaveGuard?.(() => navigate(to)) === false) return
  if (options.replace) window.history.replaceState(null, '', url)
  else window.history.pushState(null, '', url)
  address.value = currentAddress()
}

/** Changes parameters of the query of the current view; undefined or an empty text removes one. */
export function setQuery(changes: Readonly<Record<string, string | undefined>>): void {
  const { isFolder, path: whole, query } = address.value
  const current = isFolder ? `${whole}/` : whole
  const next = new URLSearchParams(query)
  for (const [name, value] of Object.entries(changes)) {
    if (value === undefined || value === '') next.delete(name)
    else next.set(name, value)
  }
  const text = next.toString()
  navigate(text === '' ? current : `${current}?${text}`, { replace: true })
}

/** A path of encoded segments: `pathOf('files', id, 'alloc/logs')` is `/files/ID/alloc%2Flogs`. */
export function pathOf(...segments: readonly string[]): string {
  return `/${segments.map(encodeURIComponent).join('/')}`
}

/**
 * The parameters of a path that matches a pattern such as `/hosts/:id` or `/files/:id/*`, decoded; undefined if it does not match. `*` matches
 * the rest, with slashes, as the parameter `rest`.
 */
export function matchPath(pattern: string, actual: string): Readonly<Record<string, string>> | undefined {
  const expected = pattern.split('/')
  const parts = actual.split('/')
  const params: Record<string, string> = {}
  for (const [index, segment] of expected.entries()) {
    if (segment === '*') {
      params['rest'] = parts.slice(index).map(decoded).join('/')
      return params
    }
    const part = parts[index]
    if (part === undefined) return undefined
    if (segment.startsWith(':')) params[segment.slice(1)] = decoded(part)
    else if (segment !== part) return undefined
  }
  return parts.length === expected.length ? params : undefined
}

function decoded(segment: string): string {
  try {
    return decodeURIComponent(segment)
  } catch {
    return segment
  }
}
