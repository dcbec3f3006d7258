import type { ComponentChildren } from 'preact'
import { navigate, UI_ROOT } from '../app/location.ts'

interface LinkProps {
  /** Path below `/ui`, encoded. */
  readonly to: string
  readonly children: ComponentChildren
  readonly class?: string
  readonly title?: string
  /** True for the link of the current view. */
  readonly current?: boolean
  readonly onOpen?: () => void
}

/** A link to a view. Opens it in the page, or in another tab as the browser does. */
export function Link({ children, class: className, current, onOpen, title, to }: LinkProps) {
  const onClick = (event: MouseEvent) => {
    if (event.button !== 0 || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return
    event.preventDefault()
    onOpen?.()
    navigate(to)
  }
  return (
    <a
      href={UI_ROOT + to}
      class={className}
      title={title}
      aria-current={current ? 'page' : undefined}
      onClick={onClick}
    >
      {children}
    </a>
  )
}
