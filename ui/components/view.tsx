import type { ComponentChildren } from 'preact'
import { useEffect } from 'preact/hooks'
import { visibleText } from '../app/invisible-characters.ts'
import { Link } from './link.tsx'

interface ViewFrameProps {
  readonly title: string
  /** The views above this one. */
  readonly parents?: readonly { readonly title: string; readonly to: string }[]
  readonly actions?: ComponentChildren
  readonly children: ComponentChildren
  /** True for a view that fills the window and scrolls inside. */
  readonly isFull?: boolean
}

/** Heading, actions and content of a view. */
export function View({ actions, children, isFull, parents = [], title }: ViewFrameProps) {
  useEffect(() => {
    document.title = `${visibleText(title)} · outpost`
  }, [title])
  return (
    <div class={isFull ? 'view view-full' : 'view'}>
      <header class="view-head">
        <div>
          {parents.length > 0 && (
            <nav aria-label="Parents" class="parents">
              {parents.map((parent) => (
                <span key={parent.to}>
                  <Link to={parent.to}>{parent.title}</Link> /{' '}
                </span>
              ))}
            </nav>
          )}
          <h1>{title}</h1>
        </div>
        {actions !== undefined && <div class="view-actions">{actions}</div>}
      </header>
      {children}
    </div>
  )
}
