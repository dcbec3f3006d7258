import { Link } from './link.tsx'

interface TabsProps {
  readonly label: string
  readonly tabs: readonly { readonly title: string; readonly to: string; readonly isCurrent: boolean }[]
}

/** Parts of a view. Each has a path, so it can be linked. */
export function Tabs({ label, tabs }: TabsProps) {
  return (
    <nav class="tabs" aria-label={label}>
      {tabs.map(({ isCurrent, title, to }) => (
        <Link key={to} to={to} current={isCurrent}>
          {title}
        </Link>
      ))}
    </nav>
  )
}
