/**
 * Keeps the focus in the page. A browser moves it to the body when the element that has it is removed or disabled, for example by the
 * next step of a dialog or at the end of an action. A screen reader is silent then, and typed text is lost. So the focus moves to what
 * replaced the element: its field with `autofocus`, or its heading, or the heading of the dialog, the section or the view around it.
 */
const REGIONS = 'form, section, dialog, main'
const FIELDS = ':is(input, textarea, select):enabled'

/** The element with the focus and its ancestors, the innermost first; empty if the user removed the focus. */
let path: readonly Element[] = []
/** Where the focus was before it moved into a dialog. */
const outsidePaths = new WeakMap<Element, readonly Element[]>()

export function keepFocus(): void {
  document.addEventListener('focusin', ({ target }) => target instanceof Element && notePath(target))
  document.addEventListener('focusout', ({ relatedTarget, target }) => {
    if (relatedTarget === null) queueMicrotask(() => noteLeft(target))
  })
  const observer = new MutationObserver(restoreFocus)
  observer.observe(document.body, { subtree: true, childList: true, attributes: true, attributeFilter: ['disabled'] })
}

function ancestorsOf(element: Element): readonly Element[] {
  const found: Element[] = []
  for (let each: Element | null = element; each; each = each.parentElement) found.push(each)
  return found
}

function notePath(element: Element): void {
  const inside = ancestorsOf(element)
  const dialog = element.closest('dialog')
  if (dialog && !path.includes(dialog)) outsidePaths.set(dialog, path)
  const outside = dialog ? outsidePaths.get(dialog) : undefined
  path = dialog && outside?.length ? [...inside.slice(0, inside.indexOf(dialog) + 1), ...outside] : inside
}

function canHaveFocus(element: Element): boolean {
  return element.isConnected && !element.matches(':disabled')
}

/** A click on the background, or Escape in a search: the focus stays on the body. */
function noteLeft(target: EventTarget | null): void {
  if (document.activeElement === document.body && target === path[0] && path[0] && canHaveFocus(path[0])) path = []
}

/** Tries again after each change until there is an element for the focus: a view that is loaded may have none. */
function restoreFocus(changes: readonly MutationRecord[]): void {
  const [lost] = path
  if (!lost || canHaveFocus(lost)) return
  const target = replacementIn(changes) ?? targetAround()
  if (target instanceof HTMLElement) moveFocus(target)
}

function moveFocus(target: HTMLElement): void {
  const isHeading = !target.matches(FIELDS)
  if (isHeading) target.tabIndex = -1
  // The part of the view that the user reads stays visible.
  target.focus({ preventScroll: isHeading && target.closest('dialog') === null })
}

/** In what was inserted in the place of the removed element. A dialog has one heading for all of its steps. */
function replacementIn(changes: readonly MutationRecord[]): Element | undefined {
  const place = changes.find(({ removedNodes }) => path.some((each) => [...removedNodes].includes(each)))?.target
  if (!(place instanceof Element) || place.closest('dialog')) return undefined
  const added = changes.filter(({ target }) => target === place).flatMap(({ addedNodes }) => [...addedNodes])
  return firstTarget(added.filter((node) => node instanceof Element && node.isConnected && !node.matches('dialog')))
}

function targetAround(): Element | undefined {
  const regions = path.filter((each) => each.isConnected && each.matches(REGIONS))
  return firstTarget([...regions, ...document.querySelectorAll('main')])
}

function firstTarget(nodes: readonly Node[]): Element | undefined {
  for (const node of nodes) {
    if (!(node instanceof Element)) continue
    const field = node.querySelector(`[autofocus]${FIELDS}`) ?? (node.matches('form') && node.querySelector(FIELDS))
    const target = field || node.querySelector('h1, h2, h3')
    if (target) return target
  }
  return undefined
}
